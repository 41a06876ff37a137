// A training as `heddle train` puts it together, inside a test program.
#pragma once

#include <memory>
#include <vector>

#include "datasets/synthetic.h"
#include "models/model_list.h"
#include "tools/rank_stream.h"
#include "tools/trainer.h"

namespace heddle::test {

// A model and its trainer on a device, as `heddle train` puts them together; make: a model that has no name.
struct Training {
  Training(const tools::Settings& settings, const datasets::ImageDatasetPair& data, Device device,
           comm::Communicator* communicator = nullptr, const comm::ModelFactory& make = {})
      : stream(device, communicator),
        model(make ? make() : models::make_model(settings.model, {})),
        train(resident(data.train, device)),
        test(resident(data.test, device)),
        trainer(settings, drawn(*model, device), train, {}, communicator,
                [name = settings.model] { return models::make_model(name, {}); }) {}

  static data::ResidentDataset resident(const datasets::ImageDataset& part, Device device) {
    return {part.images, part.labels, part.height, part.width, part.channels, part.num_classes, device};
  }
  static nn::Module& drawn(nn::Module& model, Device device) {
    Philox random(1);
    model.reset_parameters(random);
    model.to(device);
    return model;
  }
  std::vector<float> weights() {
    trainer.finish_steps();
    return trainer.optimizer().parameters().data().to_vector<float>();
  }
  void train_epoch() {
    trainer.start_epoch();
    while (trainer.advance()) {
    }
  }

  tools::RankStream stream;
  std::shared_ptr<nn::Module> model;
  data::ResidentDataset train, test;
  tools::Trainer trainer;
};

}  // namespace heddle::test
