#include "engine/optim/averaged_weights.h"

namespace heddle::optim {

void use_averages(Optimizer& optimizer, const std::function<void()>& work) {
  if (!optimizer.averages().defined()) return work();
  nn::ParameterBuffer& parameters = optimizer.parameters();
  const auto put = [&](const Tensor& values) {
    parameters.data().copy_from(values);
    parameters.mark_changed();
  };
  const Tensor weights = parameters.data().clone();
  put(optimizer.averages());
  try {
    work();
  } catch (...) {
    put(weights);
    throw;
  }
  put(weights);
}

}  // namespace heddle::optim
