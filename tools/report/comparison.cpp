#include "tools/report/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "tools/report/html.h"
#include "tools/spread.h"

namespace heddle::tools::report {
namespace {

std::string percent(double share) { return std::isfinite(share) ? fmt::format("{:.2f}%", share * 100) : "-"; }

std::string results(const std::vector<RunData>& runs, const std::vector<std::string>& names) {
  double best = 0.0;
  for (const RunData& run : runs) {
    if (run.best() != nullptr) best = std::max(best, run.best()->test_accuracy);
  }
  std::vector<std::vector<Cell>> rows;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const RunData& run = runs[i];
    std::vector<Cell> row = {{names[i]}, {run.setting("model")}, {run.setting("dataset")}, {run.setting("seed")}};
    if (const EpochLine* const last = run.last()) {
      const EpochLine* const tested = run.last_tested();
      const EpochLine* const top = run.best();
      const double accuracy = top == nullptr ? std::nan("") : top->test_accuracy;
      row.push_back({fmt::format("{}", last->epoch), false, true});
      row.push_back({tested == nullptr ? "-" : percent(tested->test_accuracy), false, true});
      row.push_back({percent(accuracy), accuracy == best, true});
      row.push_back({top == nullptr ? "-" : fmt::format("{}", top->epoch), false, true});
      row.push_back({tested == nullptr ? "-" : fmt::format("{:.4f}", tested->test_loss), false, true});
      row.push_back({fmt::format("{:.1f} s", run.training_seconds()), false, true});
      row.push_back({fmt::format("{:.0f}", last->images_per_second), false, true});
    }
    rows.push_back(row);
  }
  return table({"run", "model", "data", "seed", "epochs", "test accuracy", "best", "in epoch", "test loss",
                "training time", "images/s"},
               rows);
}

// What the runs are told apart by: everything but the seed.
std::string group_key(const RunData& run) {
  Json settings = run.settings;
  settings.erase("seed");
  return settings.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string seeds(const std::vector<RunData>& runs, const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].best() != nullptr) groups[group_key(runs[i])].push_back(i);
  }
  std::vector<std::vector<Cell>> rows;
  for (const auto& [key, members] : groups) {
    if (members.size() < 2) continue;
    std::string which;
    std::vector<double> final_accuracy, best_accuracy;
    for (const std::size_t i : members) {
      which += (which.empty() ? "" : ", ") + names[i];
      final_accuracy.push_back(runs[i].last_tested()->test_accuracy * 100);
      best_accuracy.push_back(runs[i].best()->test_accuracy * 100);
    }
    const auto add = [&](const char* what, const std::vector<double>& values) {
      const Spread spread = spread_of(values);
      rows.push_back({{which},
                      {what},
                      {fmt::format("{:.2f}%", spread.mean), true, true},
                      {fmt::format("{:.2f}", spread.deviation), false, true},
                      {fmt::format("{:.2f}%", spread.min), false, true},
                      {fmt::format("{:.2f}%", spread.max), false, true}});
    };
    add("last epoch", final_accuracy);
    add("best epoch", best_accuracy);
  }
  if (rows.empty()) return {};
  return "<h3>Seeds</h3>\n<p class=\"quiet\">Test accuracy of runs that differ in nothing but their seed.</p>\n" +
         table({"runs", "accuracy of", "mean", "standard deviation", "min", "max"}, rows);
}

std::string differences(const std::vector<RunData>& runs, const std::vector<std::string>& names) {
  std::set<std::string> keys;
  for (const RunData& run : runs) {
    for (const auto& [key, value] : run.settings.items()) keys.insert(key);
  }
  std::vector<std::vector<Cell>> rows;
  for (const std::string& key : keys) {
    std::vector<Cell> row = {{key}};
    std::set<std::string> values;
    for (const RunData& run : runs) {
      row.push_back({run.setting(key)});
      values.insert(run.setting(key));
    }
    if (values.size() > 1) rows.push_back(row);
  }
  if (rows.empty()) return "<p>All runs have the same settings.</p>\n";
  std::vector<std::string> heads = {"setting"};
  heads.insert(heads.end(), names.begin(), names.end());
  return "<h3>Settings that differ</h3>\n" + table(heads, rows);
}

}  // namespace

std::vector<std::string> names_of(const std::vector<RunData>& runs) {
  std::map<std::string, int> count;
  for (const RunData& run : runs) ++count[run.name];
  std::vector<std::string> names;
  for (const RunData& run : runs) names.push_back(count[run.name] > 1 ? run.path : run.name);
  return names;
}

std::string comparison(const std::vector<RunData>& runs, const std::vector<std::string>& names) {
  return "<h2>Results</h2>\n" + results(runs, names) + seeds(runs, names) + differences(runs, names);
}

}  // namespace heddle::tools::report
