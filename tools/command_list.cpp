#include "tools/command.h"

namespace heddle::tools {

const std::vector<Command>& command_list() {
  static const std::vector<Command> list = {
      {"train", "train a model and write a run folder", false, run_train},
      {"verify-resume", "prove that a training that stops and resumes gives the bits of one that does not", true,
       run_verify_resume},
      {"eval", "accuracy, loss, per-class table and confusion matrix of a checkpoint", true, run_eval},
      {"predict", "class and probabilities of PNG or IDX images", true, run_predict},
      {"report", "an HTML page with curves, confusion matrix, misclassified images and settings of runs", false,
       run_report},
      {"bench", "kernels: first whether they are right, then time, bytes/s, flop/s and share of the limit", true,
       run_bench},
      {"doctor", "what this machine has, what the build can use, and what is wrong", true, run_doctor},
      {"data", "fetch, verify or describe Fashion-MNIST", true, run_data},
  };
  return list;
}

}  // namespace heddle::tools
