#include "tools/report/run_section.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tools/report/html.h"

namespace heddle::tools::report {
namespace {

constexpr int kMaxDepth = 6;

std::string tile(const std::string& value, const std::string& name) {
  return "<div class=\"tile\"><b>" + escape(value) + "</b><span>" + escape(name) + "</span></div>\n";
}

std::string percent(double share) { return std::isfinite(share) ? fmt::format("{:.2f}%", share * 100) : "-"; }

// White to dark blue; the share of a row that is not on the diagonal is easier to see in red.
std::string cell_style(double share, bool hit) {
  const auto mix = [share](int dark) { return static_cast<int>(std::lround(255 + share * (dark - 255))); };
  const double reached = std::sqrt(share);  // a few mistakes are visible, too
  const auto mix_wrong = [reached](int dark) { return static_cast<int>(std::lround(255 + reached * (dark - 255))); };
  return hit ? fmt::format("background:rgb({},{},{});color:{}", mix(20), mix(80), mix(140),
                           share > 0.5 ? "#fff" : "#1d2530")
             : fmt::format("background:rgb({},{},{})", mix_wrong(225), mix_wrong(80), mix_wrong(60));
}

std::string confusion_matrix(const EvaluationData& data) {
  const std::size_t n = data.classes.size();
  std::string html = "<div class=\"scroll\"><table class=\"confusion\">\n<tr><th></th>";
  for (std::size_t j = 0; j < n; ++j) html += fmt::format("<th title=\"{}\">{}</th>", escape(data.classes[j]), j);
  html += "<th>recall</th></tr>\n";
  for (std::size_t i = 0; i < n; ++i) {
    const auto& row = data.confusion[i];
    const double total = std::accumulate(row.begin(), row.end(), 0.0);
    html += fmt::format("<tr><th class=\"row\">{} {}</th>", escape(data.classes[i]), i);
    for (std::size_t j = 0; j < n; ++j) {
      const double share = total > 0 ? static_cast<double>(row[j]) / total : 0.0;
      html += fmt::format("<td style=\"{}\" title=\"{} taken for {}: {}\">{}</td>", cell_style(share, i == j),
                          escape(data.classes[i]), escape(data.classes[j]), row[j],
                          row[j] == 0 ? std::string() : fmt::format("{}", row[j]));
    }
    html += fmt::format("<td>{}</td></tr>\n", total > 0 ? percent(static_cast<double>(row[i]) / total) : "-");
  }
  return html + "</table></div>\n<p class=\"quiet\">Rows are the true classes, columns the predicted ones.</p>\n";
}

std::string mistakes(const EvaluationData& data) {
  if (data.mistakes.empty()) return "<p>No test image was misclassified.</p>\n";
  const bool drawn = std::any_of(data.mistakes.begin(), data.mistakes.end(),
                                 [](const MistakeEntry& mistake) { return !mistake.png.empty(); });
  std::string html;
  if (!drawn) {
    html += "<p class=\"quiet\">The run was trained by a build without PNG, which keeps no images.</p>\n";
  }
  html += "<div class=\"mistakes\">\n";
  for (const MistakeEntry& mistake : data.mistakes) {
    const std::string& label = data.classes[static_cast<std::size_t>(mistake.label)];
    const std::string& prediction = data.classes[static_cast<std::size_t>(mistake.prediction)];
    html += "<figure>";
    if (!mistake.png.empty()) {
      html += fmt::format("<img alt=\"test image {}\" src=\"data:image/png;base64,{}\">", mistake.index, mistake.png);
    }
    html += fmt::format(
        "<figcaption><span class=\"right\">{}</span><br><span class=\"wrong\">{}</span><br><span class=\"quiet\">image "
        "{}<br>p = {:.2g}</span></figcaption></figure>\n",
        escape(label), escape(prediction), mistake.index, std::exp(-mistake.loss));
  }
  return html + "</div>\n";
}

// One row for each value, however deep it lies: "device.hardware".
void flatten(const Json& value, const std::string& name, int depth, std::vector<std::vector<Cell>>& rows) {
  if (!value.is_structured() || depth == kMaxDepth) {
    rows.push_back({{name}, {value_text(value)}});
    return;
  }
  std::size_t i = 0;
  for (const auto& [key, inner] : value.items()) {
    const std::string part = value.is_array() ? fmt::format("{}", ++i) : key;
    flatten(inner, name.empty() ? part : name + "." + part, depth + 1, rows);
  }
}

std::string settings_and_environment(const RunData& run) {
  std::vector<std::vector<Cell>> settings, environment;
  flatten(run.settings, "", 0, settings);
  Json rest = run.description;
  rest.erase("settings");
  flatten(rest, "", 0, environment);
  return "<details><summary>Settings</summary>\n" + table({}, settings) +
         "</details>\n<details><summary>Environment and result</summary>\n" + table({}, environment) + "</details>\n";
}

}  // namespace

std::string summary(const RunData& run) {
  std::string html = fmt::format("<p class=\"quiet\">{}: {} on {}", escape(run.path), escape(run.setting("model")),
                                 escape(run.setting("dataset")));
  const Json device = run.description.value("device", Json::object());
  if (device.is_object() && device.contains("hardware")) html += ", " + escape(value_text(device["hardware"]));
  html += ", seed " + escape(run.setting("seed")) + "</p>\n";
  for (const std::string& warning : run.warnings) html += "<p class=\"warning\">" + escape(warning) + "</p>\n";
  const EpochLine* const last = run.last();
  if (last == nullptr) return html;
  const EpochLine* const tested = run.last_tested();
  const EpochLine* const best = run.best();
  html += "<div class=\"tiles\">\n" + tile(tested == nullptr ? "-" : percent(tested->test_accuracy), "test accuracy");
  if (best != nullptr) html += tile(percent(best->test_accuracy), fmt::format("best, in epoch {}", best->epoch));
  html += tile(tested == nullptr ? "-" : fmt::format("{:.4f}", tested->test_loss), "test loss") +
          tile(fmt::format("{} / {}", last->epoch, run.setting("epochs")), "epochs") +
          tile(fmt::format("{:.1f} s", run.training_seconds()), "training time") +
          tile(fmt::format("{:.0f}", last->images_per_second), "images per second");
  return html + "</div>\n";
}

std::string run_section(const RunData& run) {
  std::string html;
  if (run.evaluation) {
    html += fmt::format("<h3>Confusion matrix after epoch {}</h3>\n", run.evaluation->epoch) +
            confusion_matrix(*run.evaluation) + "<h3>Worst misclassified images</h3>\n" +
            "<p class=\"quiet\">Each with its <span class=\"right\">true class</span>, what it was <span "
            "class=\"wrong\">taken for</span>, and the probability p that the model gave its true class.</p>\n" +
            mistakes(*run.evaluation);
  } else {
    html += "<p class=\"quiet\">The run has no evaluation.json, so there is no confusion matrix.</p>\n";
  }
  return html + settings_and_environment(run);
}

}  // namespace heddle::tools::report
