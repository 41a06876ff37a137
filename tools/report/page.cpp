#include "tools/report/page.h"

#include <fmt/format.h>

#include "tools/report/comparison.h"
#include "tools/report/html.h"
#include "tools/report/run_section.h"
#include "tools/report/svg_chart.h"

namespace heddle::tools::report {
namespace {

// No script, no font and no picture from anywhere; the policy keeps it so, whatever is in the runs' files.
constexpr const char* kHead =
    "<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
    "img-src data:\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";

constexpr const char* kStyle = R"(<style>
body { font: 15px/1.45 system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; color: #1d2530; background: #fff;
  max-width: 1180px; margin: 0 auto; padding: 16px 24px 60px; }
h1 { font-size: 26px; margin: 12px 0 2px; } h2 { font-size: 21px; margin: 40px 0 8px; border-bottom: 2px solid #dfe4ea; }
h3 { font-size: 16px; margin: 24px 0 6px; } p { margin: 6px 0; } .quiet { color: #5b6673; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 14px 0; }
.tile { border: 1px solid #dfe4ea; border-radius: 6px; padding: 8px 16px; min-width: 110px; }
.tile b { display: block; font-size: 21px; } .tile span { color: #5b6673; font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(440px, 100%), 1fr)); gap: 18px; }
.chart { margin: 0; border: 1px solid #dfe4ea; border-radius: 6px; padding: 10px 12px; }
.chart figcaption { font-weight: 600; } .chart > svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: #5b6673; }
.grid { stroke: #e6eaef; } .axis { fill: none; stroke: #8a95a3; } .curve { fill: none; stroke-width: 2; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 16px; font-size: 13px; }
.legend svg { width: 24px; height: 8px; margin-right: 5px; vertical-align: middle; }
.scroll { overflow-x: auto; margin: 8px 0; }
table { border-collapse: collapse; font-size: 14px; } th { text-align: left; color: #5b6673; font-weight: 600; }
th, td { padding: 4px 12px 4px 0; border-bottom: 1px solid #e6eaef; vertical-align: top; overflow-wrap: anywhere; }
td.n, th.n { text-align: right; } td.n { font-variant-numeric: tabular-nums; white-space: nowrap; }
.confusion td, .confusion th { padding: 5px 7px; text-align: center; border: 1px solid #fff; min-width: 34px;
  font-variant-numeric: tabular-nums; } .confusion th { font-weight: 500; }
.confusion th.row { text-align: right; white-space: nowrap; }
.mistakes { display: flex; flex-wrap: wrap; gap: 12px; } .mistakes figure { margin: 0; width: 104px; font-size: 12px; }
.mistakes img { width: 104px; height: 104px; image-rendering: pixelated; background: #eee; display: block; }
.right { color: #1b7a4b; } .wrong { color: #bf2b2b; }
details { margin: 10px 0; } summary { cursor: pointer; font-weight: 600; }
.warning { background: #fff6e0; border-left: 4px solid #e0a100; padding: 6px 12px; }
@media print { .charts { grid-template-columns: 1fr 1fr; } details { display: block; } }
</style>
)";

std::vector<std::int64_t> epochs_of(const RunData& run) {
  std::vector<std::int64_t> epochs;
  for (const EpochLine& line : run.epochs) epochs.push_back(line.epoch);
  return epochs;
}

std::vector<double> values_of(const RunData& run, double EpochLine::*field, double factor) {
  std::vector<double> values;
  for (const EpochLine& line : run.epochs) values.push_back(line.*field * factor);
  return values;
}

// A curve for training (dashed) and one for test of each run; those of a single run have a colour each.
ChartSpec train_and_test(const std::vector<RunData>& runs, const std::vector<std::string>& names, const char* title,
                         double EpochLine::*train, double EpochLine::*test, double factor, const char* unit) {
  ChartSpec spec{.title = title, .unit = unit, .series = {}};
  const bool single = runs.size() == 1;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const int colour = static_cast<int>(i);
    const std::string prefix = single ? "" : names[i] + " ";
    spec.series.push_back({.name = prefix + "train",
                           .colour = colour,
                           .dashed = !single,
                           .x = epochs_of(runs[i]),
                           .y = values_of(runs[i], train, factor)});
    spec.series.push_back({.name = prefix + "test",
                           .colour = single ? 1 : colour,
                           .dashed = false,
                           .x = epochs_of(runs[i]),
                           .y = values_of(runs[i], test, factor)});
  }
  return spec;
}

ChartSpec one_curve(const std::vector<RunData>& runs, const std::vector<std::string>& names, const char* title,
                    double EpochLine::*field) {
  ChartSpec spec{.title = title, .unit = "", .series = {}, .from_zero = true};
  for (std::size_t i = 0; i < runs.size(); ++i) {
    spec.series.push_back({.name = names[i],
                           .colour = static_cast<int>(i),
                           .dashed = false,
                           .x = epochs_of(runs[i]),
                           .y = values_of(runs[i], field, 1)});
  }
  return spec;
}

std::string charts(const std::vector<RunData>& runs, const std::vector<std::string>& names) {
  return "<h2>Curves</h2>\n<div class=\"charts\">\n" +
         svg_chart(
             train_and_test(runs, names, "Accuracy", &EpochLine::train_accuracy, &EpochLine::test_accuracy, 100, "%")) +
         svg_chart(train_and_test(runs, names, "Loss", &EpochLine::train_loss, &EpochLine::test_loss, 1, "")) +
         svg_chart(one_curve(runs, names, "Learning rate", &EpochLine::learning_rate)) +
         svg_chart(one_curve(runs, names, "Images per second", &EpochLine::images_per_second)) + "</div>\n";
}

}  // namespace

std::string make_page(const std::vector<RunData>& runs) {
  const std::vector<std::string> names = names_of(runs);
  const std::string title = runs.size() == 1 ? names[0] : fmt::format("{} runs", runs.size());
  std::string html = std::string(kPageBegin) + kHead + "<title>" + escape(title) + " - heddle report</title>\n" +
                     kStyle + "</head>\n<body>\n<h1>" + escape(title) + "</h1>\n";
  if (runs.size() > 1) html += comparison(runs, names);
  if (runs.size() == 1) html += summary(runs[0]);
  html += charts(runs, names);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs.size() > 1) html += "<h2>" + escape(names[i]) + "</h2>\n" + summary(runs[i]);
    html += run_section(runs[i]);
  }
  return html + "</body>\n</html>\n";
}

}  // namespace heddle::tools::report
