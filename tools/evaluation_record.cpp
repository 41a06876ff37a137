#include "tools/evaluation_record.h"

#include "datasets/image_file.h"
#include "tools/base64.h"

namespace heddle::tools {

Json evaluation_record(std::int64_t epoch, std::int64_t step, const Evaluation& test, const std::vector<Mistake>& worst,
                       const ModelDescription& description) {
  Json classes = Json::array(), confusion = Json::array(), mistakes = Json::array();
  for (std::int64_t i = 0; i < test.confusion.num_classes(); ++i) {
    classes.push_back(description.class_name(i));
    Json row = Json::array();
    for (std::int64_t j = 0; j < test.confusion.num_classes(); ++j) row.push_back(test.confusion.count(i, j));
    confusion.push_back(row);
  }
  for (const Mistake& mistake : worst) {
    Json entry = {
        {"index", mistake.index}, {"label", mistake.label}, {"prediction", mistake.prediction}, {"loss", mistake.loss}};
    if (datasets::png_supported()) entry["png"] = to_base64(datasets::encode_png(mistake.image));
    mistakes.push_back(entry);
  }
  return {{"epoch", epoch},
          {"step", step},
          {"samples", test.metrics.samples()},
          {"loss", test.metrics.loss()},
          {"accuracy", test.metrics.accuracy()},
          {"classes", classes},
          {"confusion", confusion},
          {"mistakes", mistakes}};
}

}  // namespace heddle::tools
