// `heddle report`: a page about runs, to look at in a browser.
#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine/core/file.h"
#include "tools/command.h"
#include "tools/command_line.h"
#include "tools/report/page.h"
#include "tools/report/run_data.h"
#include "tools/seed_set.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

CommandSpec report_spec() {
  return {.name = "heddle report",
          .summary = "an HTML page with curves, confusion matrix, misclassified images and settings of runs",
          .example =
              "heddle report runs/first\n"
              "  heddle report runs/first runs/second --out compared.html",
          .flags = {{"out", "FILE", "where the page goes; an older report there is replaced",
                     "report.html in the first folder"}},
          .positional_name = "RUN...",
          .positional_help = "folders of runs, or of sets of runs (heddle train --seeds)"};
}

// Replacing an older report is what is wanted; anything else would be a slip of the keyboard.
void refuse_other_files(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  const std::string_view expected = report::kPageBegin;
  std::string begin(expected.size(), '\0');
  const std::size_t n = InputFile(path).read_at(0, begin.data(), begin.size());
  if (n == begin.size() && begin == expected) return;
  throw UsageError(fmt::format("--out {}: the file is there and is no report; choose another name or remove it", path));
}

}  // namespace

int run_report(CommandContext& context) {
  const CommandSpec spec = report_spec();
  const ParsedArguments arguments = parse_arguments(spec, context.arguments);
  if (arguments.help) {
    context.out.write(help_text(spec));
    return exit_code::kDone;
  }
  if (arguments.positionals.empty()) throw UsageError("heddle report needs the folder of a run");
  const std::string out = arguments.has("out") ? arguments.get("out") : arguments.positionals[0] + "/report.html";
  std::vector<report::RunData> runs;
  for (const std::string& folder : arguments.positionals) {
    if (!SeedSet::is_there(folder)) {
      runs.push_back(report::read_run(folder));
      continue;
    }
    // Seeds that were not begun have nothing to show yet.
    for (const std::string& run : SeedSet::read(folder).begun_runs()) runs.push_back(report::read_run(run));
  }
  if (runs.empty()) throw UsageError("no run of the set was begun yet");
  for (const report::RunData& run : runs) {
    for (const std::string& warning : run.warnings) context.err.line("heddle: warning: " + warning);
  }
  refuse_other_files(out);
  write_file_atomically(out, report::make_page(runs));
  context.out.line("report   " + out);
  return exit_code::kDone;
}

}  // namespace heddle::tools
