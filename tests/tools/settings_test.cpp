#include "tools/settings.h"

#include "datasets/dataset_list.h"
#include "models/model_list.h"
#include "tests/support/catch.h"
#include "tests/support/temp_folder.h"
#include "tools/config_file.h"
#include "tools/presets.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

using test::message_of;
using test::put_file;
using test::TempFolder;

std::string error_of_text(const char* name, const char* text) {
  Settings settings;
  return message_of<UsageError>([&] { set_from_text(settings, *find_setting(name), text); });
}

}  // namespace

TEST_CASE("the table has a row for each field, with the field's default inside its range") {
  Settings changed;
  for (const Setting& row : setting_table()) {
    INFO(row.name);
    CHECK_FALSE(row.help.empty());
    // Setting the default again must be allowed.
    CHECK_NOTHROW(set_value(changed, row, get_value(Settings{}, row)));
  }
  CHECK(changed == Settings{});
  CHECK(setting_table().size() == 36);
}

TEST_CASE("a value is read from text, and a wrong one is refused with what is allowed") {
  Settings settings;
  set_from_text(settings, *find_setting("lr"), "2.5e-2");
  set_from_text(settings, *find_setting("batch_size"), "64");
  set_from_text(settings, *find_setting("nesterov"), "true");
  set_from_text(settings, *find_setting("model"), "lenet-d2l");
  CHECK(settings.lr == 0.025);
  CHECK(settings.batch_size == 64);
  CHECK(settings.nesterov);
  CHECK(settings.model == "lenet-d2l");

  CHECK(error_of_text("epochs", "ten") == "--epochs is 'ten'; expected a whole number from 1 to 1000000");
  CHECK(error_of_text("epochs", "0") == "--epochs is '0'; expected a whole number from 1 to 1000000");
  CHECK(error_of_text("epochs", "2.5").find("'2.5'") != std::string::npos);
  CHECK(error_of_text("lr", "nan").find("a number from 0") != std::string::npos);
  CHECK(error_of_text("lr", "0.1x").find("'0.1x'") != std::string::npos);
  CHECK(error_of_text("lr", "").find("--lr is ''") != std::string::npos);
  CHECK(error_of_text("momentum", "-0.5").find("from 0 to below 1") != std::string::npos);
  CHECK(error_of_text("batch-size", "99999999999999999999").find("--batch-size") != std::string::npos);
}

TEST_CASE("a share of one is refused where only less makes sense") {
  for (const char* const name : {"momentum", "label-smoothing"}) {
    Settings settings;
    const Setting& row = *find_setting(name);
    set_from_text(settings, row, "0.999");
    const std::string message = message_of<UsageError>([&] { set_from_text(settings, row, "1"); });
    CHECK(message.find("from 0 to below 1") != std::string::npos);
  }
}

TEST_CASE("a mistyped value names the nearest known one, and one that is not offered says so") {
  CHECK(error_of_text("schedule", "cosin").find("did you mean cosine?") != std::string::npos);
  CHECK(error_of_text("model", "lenet-d2").find("did you mean lenet-d2l?") != std::string::npos);
  CHECK(error_of_text("precision", "bf16").find("fp32 and tf32 only") != std::string::npos);
  CHECK(error_of_text("dataset", "folder").find("not offered") != std::string::npos);
}

TEST_CASE("settings that exclude each other are refused together") {
  const auto error = [](auto change) {
    Settings settings;
    change(settings);
    return message_of<UsageError>([&] { check_combinations(settings); });
  };
  CHECK(error([](Settings&) {}).empty());
  CHECK(error([](Settings& s) { s.sync_bn = true; }).empty());
  const auto reproducible = [&](auto change) {
    return error([&](Settings& s) {
      s.reproducible = true;
      change(s);
    });
  };
  CHECK(reproducible([](Settings&) {}).empty());
  for (const auto& [message, other] :
       {std::pair{reproducible([](Settings& s) { s.sync_bn = true; }), "--sync-bn"},
        {reproducible([](Settings& s) { s.accumulate = 2; }), "--accumulate 2"},
        {reproducible([](Settings& s) { s.reduce_dtype = "bf16"; }), "--reduce-dtype bf16"},
        {reproducible([](Settings& s) { s.time_algorithms = true; }), "--time-algorithms"}}) {
    CHECK(message.find(std::string("--reproducible does not go with ") + other) == 0);
  }
  CHECK(error([](Settings& s) { s.nesterov = true; }).find("--momentum") != std::string::npos);
  CHECK(error([](Settings& s) {
          s.optimizer = "adam";
          s.momentum = 0.9;
        }).find("--momentum 0.9 has no effect with --optimizer adam") != std::string::npos);
  CHECK(error([](Settings& s) { s.schedule_step = 7; }).find("--schedule step") != std::string::npos);
  CHECK(error([](Settings& s) { s.warmup_epochs = 11; }).find("--epochs 10") != std::string::npos);
  CHECK(error([](Settings& s) { s.dataset = "idx"; }).find("--data-dir") != std::string::npos);
}

TEST_CASE("settings survive the way to JSON and back") {
  Settings settings;
  settings.lr = 0.1 + 0.2;  // not a short decimal
  settings.seed = 9007199254740992;
  settings.model = "lenet-d2l";
  settings.nesterov = true;
  settings.momentum = 0.9;
  Settings copy;
  apply_json(copy, Json::parse(settings_to_json(settings).dump()), "test");
  CHECK(copy == settings);
}

TEST_CASE("a configuration file is checked as flags are") {
  const TempFolder folder;
  const std::string path = folder / "config.json";
  const auto error = [&](const std::string& text) {
    put_file(path, text);
    Settings settings;
    return message_of<UsageError>([&] { apply_config_file(settings, path); });
  };
  CHECK(error(R"({"epochs": 3, "lr": 1, "nesterov": false})").empty());
  CHECK(error(R"({"epocs": 3})") == path + ": unknown setting 'epocs'; did you mean epochs?");
  CHECK(error(R"({"epochs": "3"})").find("--epochs is '3'") != std::string::npos);
  CHECK(error(R"({"epochs": 3.5})").find("a whole number") != std::string::npos);
  CHECK(error(R"({"epochs": [3]})").find("'epochs' is array") != std::string::npos);
  CHECK(error(R"({"nesterov": 1})").find("true or false") != std::string::npos);
  CHECK(error(R"({"lr": 18446744073709551615e300})").find("overflow") != std::string::npos);
  CHECK(error("[1]").find("no JSON object") != std::string::npos);
  CHECK(error(R"({"epochs": 3, "epochs": 4})") == path + ": 'epochs' is there twice; which one counts?");
  CHECK(error(R"({"settings": {"lr": 1}, "other": {"lr": 1, "lr": 2}})").find("'lr' is there twice") !=
        std::string::npos);
  CHECK(error(R"({"batch-size": 3, "batch_size": 3})") == path + ": 'batch_size' is there with '-' and with '_'");
  CHECK(error("{\n  \"lr\": 0.1,,\n}") == path + " is not valid JSON: line 2, column 13");
  CHECK(error("").find("line 1, column 1") != std::string::npos);

  CHECK(error(R"({"data-dir": "a\u0000b"})") == path + ": 'data-dir' holds a NUL character");
  CHECK(error(R"({"lr\u0000": 1})") == path + ": the name of a setting holds a NUL character");
  // Nothing that looks like a setting is passed over.
  CHECK(error(R"({"settings": {"epochs": 3}, "lr": 0.5})") ==
        path + ": 'lr' is beside 'settings' and not in it; which one counts?");
  CHECK(error(R"({"settings": {"seed": 3}, "seed": 4})").find("'seed' is beside") != std::string::npos);
  CHECK(error(R"({"settings": {"seed": 3}, "seed": 3, "model": {"name": "lenet"}})").empty());

  put_file(path, R"({"heddle": "0.1.0", "settings": {"model": "lenet", "batch_size": 32}, "other": 1})");
  Settings settings;
  apply_config_file(settings, path);
  CHECK(settings.batch_size == 32);
}

TEST_CASE("the program offers the data sets and the models of their lists") {
  std::vector<std::string> datasets, models;
  for (const datasets::DatasetInfo& info : datasets::dataset_list()) datasets.emplace_back(info.name);
  for (const models::ModelInfo& info : models::model_list()) models.emplace_back(info.name);
  CHECK(find_setting("dataset")->choices == datasets);
  CHECK(find_setting("model")->choices == models);
}

TEST_CASE("no preset resets how and where a training runs") {
  for (const std::string& preset : preset_names()) {
    Settings settings;
    settings.ranks = 3;
    settings.accumulate = 4;
    settings.parity_gate = false;
    settings.check_replicas = 7;
    settings.comm_timeout = 5;
    settings.threads = 2;
    settings.device = "cpu";
    settings.kernels = "own";
    settings.precision = "tf32";
    settings.sync_bn = settings.deterministic = settings.time_algorithms = true;
    settings.checkpoint_every = 3;
    settings.graph = false;
    settings.steps_per_launch = 2;
    settings.seed = 5;
    settings.data_dir = "/somewhere";
    const Settings before = settings;
    apply_preset(settings, preset);
    for (const Setting& row : setting_table()) {
      INFO(preset + ": " + row.name);
      if (row.machine) CHECK(get_value(settings, row) == get_value(before, row));
    }
    CHECK(settings.accumulate == 4);
    CHECK_FALSE(settings.parity_gate);
    CHECK(settings.check_replicas == 7);
    CHECK(settings.comm_timeout == 5);
  }
}

TEST_CASE("a preset changes the recipe and leaves model, data and machine alone") {
  Settings settings;
  settings.model = "lenet-d2l";
  settings.seed = 5;
  settings.data_dir = "/somewhere";
  settings.lr = 3;
  apply_preset(settings, "seed");
  CHECK(settings.lr == 0.1);
  CHECK(settings.batch_size == 256);
  CHECK(settings.epochs == 10);
  CHECK(settings.optimizer == "sgd");
  CHECK(settings.momentum == 0);
  CHECK(settings.seed == 5);
  CHECK(settings.data_dir == "/somewhere");
  CHECK(settings.model == "lenet-d2l");
  const std::string error = message_of<UsageError>([&] { apply_preset(settings, "bset"); });
  CHECK(error == "--preset is 'bset'; expected one of seed, best; did you mean best?");

  // A file's own keys are stronger than the preset that it names.
  apply_json(settings, Json::parse(R"({"lr": 0.7, "preset": "best"})"), "test");
  CHECK(settings.lr == 0.7);
  CHECK(settings.epochs > 10);
}

}  // namespace heddle::tools
