#include "tools/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

// The whole text as a number, or nothing.
template <class T>
std::optional<T> parse(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string range_text(const Setting& row) {
  const bool whole = std::holds_alternative<std::int64_t Settings::*>(row.field);
  return fmt::format("{} from {:.16g} to {}{:.16g}", whole ? "a whole number" : "a number", row.min,
                     row.below_max ? "below " : "", row.max);
}

[[noreturn]] void refuse(const Setting& row, std::string_view value, std::string_view expected) {
  throw UsageError(fmt::format("--{} is '{}'; expected {}", row.name, value, expected));
}

void check_range(const Setting& row, double value, std::string_view text) {
  if (!(value >= row.min && value <= row.max) || (row.below_max && value == row.max))
    refuse(row, text, range_text(row));
}

void set_text(Settings& settings, const Setting& row, std::string Settings::*field, const std::string& value) {
  for (const RefusedValue& refused : row.refused) {
    if (value == refused.value) throw UsageError(fmt::format("--{} {}: {}", row.name, value, refused.reason));
  }
  if (!row.choices.empty() && std::find(row.choices.begin(), row.choices.end(), value) == row.choices.end()) {
    throw UsageError(fmt::format("--{} is '{}'; expected one of {}{}", row.name, value, join_names(row.choices),
                                 did_you_mean(value, row.choices)));
  }
  settings.*field = value;
}

}  // namespace

std::vector<std::string> setting_names() {
  std::vector<std::string> names;
  for (const Setting& row : setting_table()) names.push_back(row.name);
  return names;
}

const Setting* find_setting(std::string_view name) {
  std::string wanted(name);
  std::replace(wanted.begin(), wanted.end(), '_', '-');
  for (const Setting& row : setting_table()) {
    if (row.name == wanted) return &row;
  }
  return nullptr;
}

SettingValue get_value(const Settings& settings, const Setting& row) {
  return std::visit([&](auto field) -> SettingValue { return settings.*field; }, row.field);
}

std::string to_text(const SettingValue& value) {
  if (const bool* on = std::get_if<bool>(&value)) return *on ? "true" : "false";
  return std::visit([](const auto& v) { return fmt::format("{}", v); }, value);
}

void set_from_text(Settings& settings, const Setting& row, std::string_view text) {
  if (std::holds_alternative<std::string Settings::*>(row.field)) {
    set_value(settings, row, std::string(text));
  } else if (std::holds_alternative<bool Settings::*>(row.field)) {
    if (text != "true" && text != "false") refuse(row, text, "true or false");
    set_value(settings, row, text == "true");
  } else if (std::holds_alternative<std::int64_t Settings::*>(row.field)) {
    const auto value = parse<std::int64_t>(text);
    if (!value) refuse(row, text, range_text(row));
    set_value(settings, row, *value);
  } else {
    const auto value = parse<double>(text);
    if (!value) refuse(row, text, range_text(row));
    set_value(settings, row, *value);
  }
}

void set_value(Settings& settings, const Setting& row, const SettingValue& value) {
  if (const auto* field = std::get_if<std::string Settings::*>(&row.field)) {
    if (!std::holds_alternative<std::string>(value)) refuse(row, to_text(value), "a text");
    set_text(settings, row, *field, std::get<std::string>(value));
  } else if (const auto* flag = std::get_if<bool Settings::*>(&row.field)) {
    if (!std::holds_alternative<bool>(value)) refuse(row, to_text(value), "true or false");
    settings.** flag = std::get<bool>(value);
  } else if (const auto* whole = std::get_if<std::int64_t Settings::*>(&row.field)) {
    if (!std::holds_alternative<std::int64_t>(value)) refuse(row, to_text(value), range_text(row));
    const std::int64_t n = std::get<std::int64_t>(value);
    // As integers: 2^53 + 1 as a double would be 2^53.
    if (n < static_cast<std::int64_t>(row.min) || n > static_cast<std::int64_t>(row.max)) {
      refuse(row, to_text(value), range_text(row));
    }
    settings.** whole = n;
  } else {
    const auto* number = std::get_if<double>(&value);
    const auto* integer = std::get_if<std::int64_t>(&value);
    if (number == nullptr && integer == nullptr) refuse(row, to_text(value), range_text(row));
    const double x = number != nullptr ? *number : static_cast<double>(*integer);
    check_range(row, x, to_text(value));
    settings.*std::get<double Settings::*>(row.field) = x;
  }
}

void check_combinations(const Settings& s) {
  const auto require = [](bool ok, const std::string& message) {
    if (!ok) throw UsageError(message);
  };
  const Settings defaults;
  require(!s.reproducible || !s.sync_bn,
          "--reproducible does not go with --sync-bn: its batch statistics are those of a micro-shard, whatever the "
          "ranks; leave one of them out");
  require(
      !s.reproducible || s.accumulate == 1,
      fmt::format("--reproducible does not go with --accumulate {}: it cuts every batch into micro-shards, of which "
                  "each thread has one in memory at a time, which saves memory the same way; leave one of them out",
                  s.accumulate));
  require(
      !s.reproducible || s.reduce_dtype == "fp32",
      fmt::format("--reproducible does not go with --reduce-dtype {}: its sums are exchanged as they are; leave one "
                  "of them out",
                  s.reduce_dtype));
  require(!s.reproducible || !s.time_algorithms,
          "--reproducible does not go with --time-algorithms: what a clock chooses is not the same in every run; leave "
          "one of them out");
  require(s.optimizer == "sgd" || s.momentum == 0,
          fmt::format("--momentum {} has no effect with --optimizer {}; set --momentum 0", s.momentum, s.optimizer));
  require(!s.nesterov || s.momentum > 0, "--nesterov needs --momentum above 0");
  require(s.schedule == "step" ||
              (s.schedule_step == defaults.schedule_step && s.schedule_gamma == defaults.schedule_gamma),
          fmt::format("--schedule-step and --schedule-gamma have no effect with --schedule {}; use --schedule step",
                      s.schedule));
  require(s.accumulate <= s.batch_size,
          fmt::format("--accumulate {} is more than the images of --batch-size {}", s.accumulate, s.batch_size));
  require(s.warmup_epochs <= static_cast<double>(s.epochs),
          fmt::format("--warmup-epochs {} is more than --epochs {}", s.warmup_epochs, s.epochs));
  require(s.dataset != "idx" || !s.data_dir.empty(), "--dataset idx needs --data-dir DIR with the four files");
  require(s.dataset != "synthetic" || s.data_dir.empty(),
          fmt::format("--data-dir {} has no effect with --dataset synthetic, which is computed", s.data_dir));
}

}  // namespace heddle::tools
