// `heddle report`: the page it makes of good, odd and broken runs.
#include <algorithm>
#include <cmath>
#include <filesystem>

#include "datasets/image_file.h"
#include "tests/support/catch.h"
#include "tests/tools/program.h"
#include "tools/report/html.h"
#include "tools/report/page.h"
#include "tools/report/run_data.h"
#include "tools/report/svg_chart.h"

namespace heddle::test {
namespace {

namespace report = tools::report;

// As many times as the text holds the part.
std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++n;
  return n;
}

tools::Json small_run(const std::string& seed = "1") {
  return {{"heddle", "0.1.0"},
          {"settings", {{"model", "lenet"}, {"dataset", "synthetic"}, {"seed", std::stoi(seed)}, {"epochs", 2}}},
          {"device", {{"name", "cpu"}, {"hardware", "a processor"}}}};
}

// A folder with the files of a run, as a person might have edited them.
void write_run(const std::string& path, const tools::Json& description, const std::string& metrics,
               const std::string& evaluation = "") {
  std::filesystem::create_directories(path);
  put_file(path + "/run.json", description.dump());
  put_file(path + "/metrics.jsonl", metrics);
  if (!evaluation.empty()) put_file(path + "/evaluation.json", evaluation);
}

std::string metrics_line(int epoch, double accuracy) {
  return tools::Json({{"epoch", epoch},
                      {"train_loss", 0.5},
                      {"train_accuracy", accuracy},
                      {"test_loss", 0.25},
                      {"test_accuracy", accuracy},
                      {"learning_rate", 0.1},
                      {"seconds", 2.0},
                      {"images_per_second", 100.0}})
             .dump() +
         "\n";
}

}  // namespace

TEST_CASE("the report of a training is one page with curves, matrix, images and settings, and nothing from outside") {
  const TempFolder folder;
  write_small_dataset(folder.path());
  const std::string run = folder / "run";
  REQUIRE(heddle(small_training(folder.path(), run, {"--epochs", "3", "--lr", "0.01"})).exit_code == 0);
  const ProcessResult result = heddle({"report", run});
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK(result.out == "report   " + run + "/report.html\n");
  const std::string page = get_file(run + "/report.html");
  CHECK(page.starts_with(report::kPageBegin));
  CHECK(page.ends_with("</html>\n"));
  for (const char* outside : {"http:", "https:", "<script", "<link", "@import", "url(", "src=\"/"}) {
    INFO(outside);
    CHECK_FALSE(contains(page, outside));
  }
  // Accuracy, loss, learning rate and speed; the curves of the first two have two lines.
  CHECK(count(page, "<figure class=\"chart\">") == 4);
  CHECK(count(page, "<circle") == 3 * 6);
  const tools::Json evaluation = json_file(run + "/evaluation.json");
  CHECK(evaluation["epoch"] == 3);
  CHECK(evaluation["samples"] == 200);
  std::int64_t images = 0, right = 0;
  for (std::size_t i = 0; i < 10; ++i) {
    for (std::size_t j = 0; j < 10; ++j) images += evaluation["confusion"][i][j].get<std::int64_t>();
    right += evaluation["confusion"][i][i].get<std::int64_t>();
  }
  CHECK(images == 200);
  CHECK(static_cast<double>(right) / 200 == Approx(evaluation["accuracy"].get<double>()));
  CHECK(evaluation["mistakes"].size() == std::min<std::size_t>(24, static_cast<std::size_t>(200 - right)));
  CHECK(count(page, "<figcaption><span class=\"right\">") == evaluation["mistakes"].size());
  CHECK(count(page, "src=\"data:image/png;base64,") == (datasets::png_supported() ? evaluation["mistakes"].size() : 0));
  // Losses fall, and each is that of a wrong answer: above -log(1/2).
  double before = 1e9;
  for (const tools::Json& mistake : evaluation["mistakes"]) {
    CHECK(mistake["label"] != mistake["prediction"]);
    CHECK(mistake["loss"].get<double>() > 0.69);
    CHECK(mistake["loss"].get<double>() <= before);
    before = mistake["loss"].get<double>();
  }
  // Settings and environment.
  CHECK(contains(page, "<td>batch-size</td><td>32</td>"));
  CHECK(contains(page, "<td>result.weights_crc32</td><td>" + weights_of(run) + "</td>"));
  // An older report is replaced, another file is not.
  CHECK(heddle({"report", run}).exit_code == 0);
  put_file(folder / "notes.txt", "mine");
  const ProcessResult refused = heddle({"report", run, "--out", folder / "notes.txt"});
  CHECK(refused.exit_code == 2);
  CHECK(contains(refused.err, "is no report"));
  CHECK(get_file(folder / "notes.txt") == "mine");
}

TEST_CASE("several runs are compared: results, spread over seeds, and settings that differ") {
  const TempFolder folder;
  write_run(folder / "a", small_run("1"), metrics_line(1, 0.5) + metrics_line(2, 0.8));
  write_run(folder / "b", small_run("2"), metrics_line(1, 0.9) + metrics_line(2, 0.7));
  tools::Json other = small_run("3");
  other["settings"]["model"] = "lenet-d2l";
  write_run(folder / "c", other, metrics_line(1, 0.25));
  const ProcessResult result =
      heddle({"report", folder / "a", folder / "b", folder / "c", "--out", folder / "all.html"});
  REQUIRE(result.exit_code == 0);
  CHECK_FALSE(file_exists(folder / "a/report.html"));
  const std::string page = get_file(folder / "all.html");
  CHECK(contains(page, "<b>90.00%</b>"));  // the best of all
  // (80 + 70) / 2 and sqrt(5^2 + 5^2) for the last epoch, (80 + 90) / 2 for the best one.
  CHECK(contains(page, "<td>a, b</td><td>last epoch</td><td class=\"n\"><b>75.00%</b></td><td class=\"n\">7.07</td>"));
  CHECK(contains(page, "<td>best epoch</td><td class=\"n\"><b>85.00%</b></td>"));
  CHECK(contains(page, "<td>model</td><td>lenet</td><td>lenet</td><td>lenet-d2l</td>"));
  CHECK_FALSE(contains(page, "<td>dataset</td><td>synthetic</td><td>synthetic</td>"));
  CHECK(count(page, "no evaluation.json") == 3);
}

TEST_CASE("texts of a run's files do nothing in the page but stand there") {
  const TempFolder folder;
  const std::string evil = "<script>alert('x')</script>\"&\x01";
  tools::Json run = small_run();
  run["settings"]["model"] = evil;
  run["device"]["hardware"] = evil;
  run[evil] = {{evil, evil}};
  const tools::Json evaluation = {
      {"epoch", 1},
      {"classes", {evil, "b"}},
      {"confusion", {{1, 2}, {3, 4}}},
      {"mistakes", {{{"index", 7}, {"label", 0}, {"prediction", 1}, {"loss", 2.0}, {"png", "AAAA"}}}}};
  write_run(folder / "<b>run", run, metrics_line(1, 0.5), evaluation.dump());
  REQUIRE(heddle({"report", folder / "<b>run"}).exit_code == 0);
  const std::string page = get_file(folder / "<b>run/report.html");
  CHECK_FALSE(contains(page, "<script"));
  CHECK_FALSE(contains(page, "<b>run"));
  CHECK(contains(page, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;&#xfffd;"));
  CHECK(report::escape("a\tb\nc\x7f") == "a\tb\nc&#xfffd;");
}

TEST_CASE("what is broken in a run is left out with a warning, and what is no run is refused") {
  const TempFolder folder;
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& reason) {
    std::vector<std::string> all = {"report"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const ProcessResult result = heddle(all);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(contains(result.err, reason));
  };
  refused({}, "needs the folder of a run");
  refused({folder / "none"}, "no run is there");
  refused({folder.path()}, "run.json is missing");
  put_file(folder / "run.json", "{\"a\": 1}");
  refused({folder.path()}, "it has no settings");
  put_file(folder / "run.json", "{");
  refused({folder.path()}, "is not valid JSON");

  // A line of another kind, one without numbers, one that was cut; of many only the first are named.
  std::string metrics = metrics_line(1, 0.5) + "[1]\n{\"epoch\": \"x\"}\n{\"epoch\": 2, \"test_accuracy\": null}\n";
  for (int i = 0; i < 10; ++i) metrics += "junk\n";
  write_run(folder / "run", small_run(), metrics + metrics_line(3, 0.75) + "{\"epoch\": 4, \"tes",
            "{\"epoch\": 1, \"classes\": [\"a\"], \"confusion\": [[1, 2]], \"mistakes\": []}");
  const ProcessResult result = heddle({"report", folder / "run"});
  CHECK(result.exit_code == 0);
  CHECK(count(result.err, "is no epoch's metrics and is left out") == 5);
  CHECK(contains(result.err, "metrics.jsonl: line 2 is"));
  CHECK(contains(result.err, "8 more lines are left out"));
  CHECK(contains(result.err, "evaluation.json is broken and is left out: a row of the confusion matrix has 2 of 1"));
  const std::string page = get_file(folder / "run/report.html");
  CHECK(contains(page, "75.00%"));
  CHECK(count(page, "class=\"warning\"") == 7);

  // An image that would end its attribute.
  write_run(folder / "image", small_run(), metrics_line(1, 0.5),
            "{\"epoch\": 1, \"classes\": [\"a\"], \"confusion\": [[1]], \"mistakes\": [{\"index\": 0, \"label\": 0, "
            "\"prediction\": 0, \"loss\": 1, \"png\": \"\\\">\"}]}");
  CHECK(contains(heddle({"report", folder / "image"}).err, "an image is not in base64"));
  // What cannot be read at all.
  write_run(folder / "unread", small_run(), metrics_line(1, 0.5));
  std::filesystem::create_directories(folder / "unread/evaluation.json");
  const ProcessResult unread = heddle({"report", folder / "unread"});
  CHECK(unread.exit_code == 0);
  CHECK(contains(unread.err, "evaluation.json is broken and is left out: "));
  // Lists in lists, as many as overflow a stack that goes into each.
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  write_run(folder / "deep", small_run(), "{\"epoch\": " + deep + "}\n" + metrics_line(1, 0.5), deep);
  CHECK(heddle({"report", folder / "deep"}).exit_code == 0);
  put_file(folder / "deep/run.json", "{\"settings\": {\"model\": " + deep + "}}");
  refused({folder / "deep"}, "is nested more than 64 deep");
  const ProcessResult resumed = heddle({"train", "--resume", folder / "deep"});
  CHECK(resumed.exit_code == 2);
  CHECK(contains(resumed.err, "is nested more than 64 deep"));
  // A run that has no epoch yet, and images without PNG.
  write_run(
      folder / "new", small_run(), "",
      "{\"epoch\": 0, \"classes\": [\"a\", \"b\"], \"confusion\": [[1, 0], [1, 0]], \"mistakes\": [{\"index\": 0, "
      "\"label\": 1, \"prediction\": 0, \"loss\": 1}]}");
  CHECK(heddle({"report", folder / "new"}).exit_code == 0);
  CHECK(contains(get_file(folder / "new/report.html"), "No epoch was recorded."));
  CHECK(contains(get_file(folder / "new/report.html"), "a build without PNG"));
}

TEST_CASE("a chart takes any numbers and any count of points") {
  const auto chart = [](std::vector<std::int64_t> x, std::vector<double> y, bool from_zero = false) {
    return report::svg_chart({.title = "t",
                              .unit = "",
                              .series = {{.name = "s", .x = std::move(x), .y = std::move(y)}},
                              .from_zero = from_zero});
  };
  const double nan = std::nan("");
  for (const bool from_zero : {false, true}) {
    for (const std::vector<double>& y :
         {std::vector<double>{1, 1}, {0, 0}, {-1e29, 1e29}, {1e-300, 2e-300}, {-5, -5}, {0.1, nan}, {1, 1 + 1e-15}}) {
      const std::string svg = chart({1, 2}, y, from_zero);
      CHECK_FALSE(contains(svg, "nan"));
      CHECK_FALSE(contains(svg, "inf"));
      CHECK(contains(svg, "<circle"));
      CHECK(count(svg, "text-anchor=\"end\"") <= 12);
    }
  }
  CHECK(contains(chart({}, {}), "No epoch was recorded."));
  CHECK(contains(chart({1}, {nan}), "No epoch was recorded."));
  CHECK(contains(chart({1}, {1e308}), "No epoch was recorded."));
  // A gap begins a new part of the curve, and many points have no marks.
  CHECK(count(chart({1, 2, 3, 4}, {1, nan, 2, 3}), "M") >= 2);
  CHECK_FALSE(contains(chart(std::vector<std::int64_t>(100, 1), std::vector<double>(100, 2)), "<circle"));
  CHECK(contains(chart({0, 1'000'000'000}, {1, 2}), "<circle"));
}

}  // namespace heddle::test
