// Flags that the benchmarks share, and how their values are read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/command_line.h"

namespace heddle::tools::bench {

// Files of a report, and what it is compared with; "" = none.
struct ReportFiles {
  std::string json, csv, baseline;
  double max_regression = 0.05;
};

// --json, --csv, --baseline and --max-regression; what: "a kernel". Without --csv where with_csv is false.
std::vector<FlagSpec> report_flags(const std::string& what, bool with_csv = true);
// Throws: UsageError if they do not go together, or with a run that takes no times.
ReportFiles read_report_files(const ParsedArguments& arguments, bool timed);

// The value of --flag, from low to high. Throws: UsageError.
std::int64_t whole_number(const ParsedArguments& arguments, const std::string& flag, std::int64_t fallback,
                          std::int64_t low, std::int64_t high);
// The same of a text; `flag` is for the message.
std::int64_t parse_whole_number(const std::string& text, const std::string& flag, std::int64_t low, std::int64_t high);
// "a,b,c" without blanks around the items. Throws: UsageError if an item is empty.
std::vector<std::string> parse_list(const std::string& text, const std::string& flag);
// The items of --flag, or of `fallback`, each one of `known`. Throws: UsageError.
std::vector<std::string> choices(const ParsedArguments& arguments, const std::string& flag, const std::string& fallback,
                                 const std::vector<std::string>& known);
// "4096", "64KiB", "16M", "1G": bytes, by 1024. Throws: UsageError for what is no size of at least a byte.
std::size_t parse_nbytes(const std::string& text, const std::string& flag);

}  // namespace heddle::tools::bench
