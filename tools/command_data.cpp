// `heddle data fetch|verify|info`: gets, checks and describes Fashion-MNIST.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "datasets/dataset_list.h"
#include "datasets/fashion_mnist.h"
#include "datasets/fetch.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/data_source.h"
#include "tools/interrupt.h"
#include "tools/suggest.h"
#include "tools/system_info.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

int fetch(const std::string& folder, CommandContext& context) {
  const InterruptWatch interrupt;
  datasets::FetchOptions options;
  options.folder = folder;
  options.on_message = [&](const std::string& text) { context.out.line(text); };
  bool bar = false;
  options.on_progress = [&](const std::string& name, std::uint64_t nbytes) {
    if (context.out.is_terminal()) {
      context.out.write(fmt::format("\r{}: {}\x1b[K", name, format_nbytes(nbytes)));
      bar = true;
    }
    return !interrupt.requested();
  };
  try {
    const std::vector<datasets::FetchedFile> files = datasets::fetch_fashion_mnist(options);
    if (bar) context.out.write("\r\x1b[K");
    for (const datasets::FetchedFile& file : files) {
      context.out.line(file.url.empty() ? file.path + ": was there already" : file.path + ": from " + file.url);
    }
  } catch (const Error&) {
    if (bar) context.out.write("\r\x1b[K");
    if (!interrupt.requested()) throw;
    context.err.line("heddle: interrupted; heddle data fetch continues where it stopped");
    return interrupt.exit_code();
  }
  return exit_code::kDone;
}

int verify(const std::string& folder, CommandContext& context) {
  const std::string place = folder.empty() ? datasets::find_fashion_mnist().folder : folder;
  bool all_ok = true;
  for (const datasets::VerifiedFile& file : datasets::verify_fashion_mnist(place)) {
    all_ok = all_ok && file.ok;
    context.out.line(file.ok ? fmt::format("{}: ok, crc32 {}", file.path, crc32_text(file.crc32))
                             : fmt::format("{}: {}", file.path, file.problem));
  }
  if (!all_ok) context.err.line("heddle: not all files are those of Fashion-MNIST; get them with heddle data fetch");
  return all_ok ? exit_code::kDone : exit_code::kFailed;
}

void print_part(const char* name, const datasets::ImageDataset& part, Console& out) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(part.num_classes));
  for (const std::uint8_t label : part.labels) ++counts[label];
  out.line(fmt::format("{}: {} images of {}x{}x{}, {} classes", name, part.count, part.height, part.width,
                       part.channels, part.num_classes));
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::string label = i < part.class_names.size() ? part.class_names[i] : std::to_string(i);
    out.line(fmt::format("  {:>3}  {:<14}{:>8}", i, label, counts[i]));
  }
}

int info(const std::string& dataset, const std::string& folder, CommandContext& context) {
  Settings settings;
  set_from_text(settings, *find_setting("dataset"), dataset.empty() ? settings.dataset : dataset);
  settings.data_dir = folder;
  check_combinations(settings);
  const datasets::ImageDatasetPair data = load_data(settings);
  context.out.line("name     " + data.name);
  print_data(data, settings, context.out, context.err);
  print_part("training", data.train, context.out);
  print_part("test", data.test, context.out);
  return exit_code::kDone;
}

CommandSpec data_spec() {
  return {.name = "heddle data",
          .summary = "fetch, verify or describe Fashion-MNIST",
          .example =
              "heddle data fetch\n  heddle data verify --data-dir /usr/share/datasets/fashion-mnist\n"
              "  heddle data info --dataset synthetic",
          .flags = {{.name = "data-dir",
                     .value_name = "DIR",
                     .help = "folder of the files; fetch: where to put them (default: the cache folder), verify and "
                             "info: where they are (default: search)"},
                    {.name = "dataset",
                     .value_name = "NAME",
                     .help = "info: " + join_names(find_setting("dataset")->choices)}},
          .positional_name = "fetch|verify|info",
          .positional_help = "fetch: download what is missing; verify: compare checksums; info: sizes and classes"};
}

}  // namespace

int run_data(CommandContext& context) {
  const CommandSpec spec = data_spec();
  const ParsedArguments arguments = parse_arguments(spec, context.arguments);
  if (arguments.help) {
    context.out.write(help_text(spec));
    return exit_code::kDone;
  }
  const std::vector<std::string> actions = {"fetch", "verify", "info"};
  if (arguments.positionals.size() != 1) throw UsageError("heddle data needs one of fetch, verify, info");
  const std::string& action = arguments.positionals[0];
  const std::string folder = arguments.get("data-dir");
  if (action != "info" && arguments.has("dataset")) {
    throw UsageError("--dataset has no effect with heddle data " + action + ", which knows Fashion-MNIST only");
  }
  if (action == "fetch") return fetch(folder, context);
  if (action == "verify") return verify(folder, context);
  if (action == "info") return info(arguments.get("dataset"), folder, context);
  throw UsageError("heddle data: unknown action '" + action + "'; expected one of fetch, verify, info" +
                   did_you_mean(action, actions));
}

}  // namespace heddle::tools
