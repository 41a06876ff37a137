#include "tools/bench/arguments.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/core/text.h"
#include "tools/bench/baseline.h"
#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools::bench {

std::vector<FlagSpec> report_flags(const std::string& what, bool with_csv) {
  std::vector<FlagSpec> flags = {{"json", "FILE", "write all numbers as JSON"}};
  if (with_csv) flags.push_back({"csv", "FILE", "write all numbers as a table"});
  flags.push_back({"baseline", "FILE", "compare with an earlier --json"});
  flags.push_back(
      {"max-regression", "P", fmt::format("exit with 1 if {} is slower than the baseline by more", what), "5%"});
  return flags;
}

ReportFiles read_report_files(const ParsedArguments& arguments, bool timed) {
  ReportFiles files{.json = arguments.get("json"), .csv = arguments.get("csv"), .baseline = arguments.get("baseline")};
  if (arguments.has("max-regression")) {
    if (files.baseline.empty()) throw UsageError("--max-regression needs --baseline FILE");
    files.max_regression = parse_percent(arguments.get("max-regression"), "--max-regression");
  }
  if (!files.baseline.empty() && !timed) {
    throw UsageError("--baseline compares times, and --repeats 0 takes none");
  }
  return files;
}

std::int64_t parse_whole_number(const std::string& text, const std::string& flag, std::int64_t low, std::int64_t high) {
  std::int64_t value = -1;
  const bool digits = !text.empty() && text.size() <= 9 && text.find_first_not_of("0123456789") == std::string::npos;
  if (digits) value = std::stoll(text);
  if (value < low || value > high) {
    throw UsageError(fmt::format("--{} is '{}'; expected a whole number from {} to {}", flag, text, low, high));
  }
  return value;
}

std::int64_t whole_number(const ParsedArguments& arguments, const std::string& flag, std::int64_t fallback,
                          std::int64_t low, std::int64_t high) {
  return arguments.has(flag) ? parse_whole_number(arguments.get(flag), flag, low, high) : fallback;
}

std::vector<std::string> parse_list(const std::string& text, const std::string& flag) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    std::string item = text.substr(begin, end - begin);
    item.erase(0, std::min(item.find_first_not_of(' '), item.size()));
    item.erase(item.find_last_not_of(' ') + 1);
    if (item.empty()) throw UsageError(fmt::format("--{} is '{}'; expected names or numbers like a,b", flag, text));
    items.push_back(std::move(item));
    begin = end + 1;
  }
  return items;
}

std::vector<std::string> choices(const ParsedArguments& arguments, const std::string& flag, const std::string& fallback,
                                 const std::vector<std::string>& known) {
  std::vector<std::string> items = parse_list(arguments.has(flag) ? arguments.get(flag) : fallback, flag);
  for (const std::string& item : items) {
    if (std::find(known.begin(), known.end(), item) != known.end()) continue;
    throw UsageError(
        fmt::format("--{} is '{}'; expected {}{}", flag, item, join_names(known, ", "), did_you_mean(item, known)));
  }
  return items;
}

std::size_t parse_nbytes(const std::string& text, const std::string& flag) {
  static constexpr struct {
    const char* name;
    int shift;
  } kUnits[] = {{"", 0}, {"B", 0}, {"K", 10}, {"KiB", 10}, {"M", 20}, {"MiB", 20}, {"G", 30}, {"GiB", 30}};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string unit = text.substr(digits);
  unit.erase(0, std::min(unit.find_first_not_of(' '), unit.size()));
  for (const auto& [name, shift] : kUnits) {
    if (digits == 0 || digits > 9 || unit != name) continue;
    const std::size_t nbytes = static_cast<std::size_t>(std::stoull(text.substr(0, digits))) << shift;
    if (nbytes > 0) return nbytes;
  }
  throw UsageError(fmt::format("--{} is '{}'; expected bytes, such as 4096, 64KiB, 16MiB or 1GiB", flag, text));
}

}  // namespace heddle::tools::bench
