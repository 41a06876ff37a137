#include "tools/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

constexpr std::size_t kHelpColumn = 32;

// What the flag library fills in; addresses must not move after the flags were added.
struct Values {
  std::map<std::string, std::vector<std::string>> texts;
  std::map<std::string, bool> switches;
  std::vector<std::string> positionals;
};

void add_flags(CLI::App& app, const CommandSpec& spec, Values& values) {
  app.set_help_flag();
  app.add_flag("-h,--help");
  for (const FlagSpec& flag : spec.flags) {
    if (flag.value_name.empty()) {
      app.add_flag(fmt::format("--{0},!--no-{0}", flag.name), values.switches[flag.name]);
    } else {
      app.add_option("--" + flag.name, values.texts[flag.name])->expected(1)->take_all()->allow_extra_args(false);
    }
  }
  if (!spec.positional_name.empty()) app.add_option("positional", values.positionals);
  app.allow_extras();
}

[[noreturn]] void refuse_extra(const CommandSpec& spec, const std::string& extra) {
  if (!extra.starts_with('-')) {
    throw UsageError(fmt::format("{} takes no argument '{}'; see {} --help", spec.name, extra, spec.name));
  }
  std::vector<std::string> names = {"help"};
  for (const FlagSpec& flag : spec.flags) names.push_back(flag.name);
  const std::string given = extra.substr(0, extra.find('='));
  const std::string bare =
      given.substr(given.find_first_not_of('-') == std::string::npos ? given.size() : given.find_first_not_of('-'));
  throw UsageError(fmt::format("unknown flag {}{}{}", given, did_you_mean(bare, names, "--"),
                               "\nSee " + spec.name + " --help for all flags."));
}

// The first text with the prefix, or null.
const std::string* find_prefix(const std::vector<std::string>& texts, const std::string& prefix) {
  const auto found =
      std::find_if(texts.begin(), texts.end(), [&](const auto& text) { return text.starts_with(prefix); });
  return found == texts.end() ? nullptr : &*found;
}

std::string empty_value(const FlagSpec& flag) {
  return fmt::format("--{} is empty; expected {}", flag.name, flag.value_name);
}

// What the flag library cannot read, in our words. Its parser takes whatever follows a flag as the value, so only the
// last argument can lack one.
[[noreturn]] void refuse_unreadable(const CommandSpec& spec, const std::vector<std::string>& arguments,
                                    const std::string& reason) {
  std::string message = reason;
  for (const FlagSpec& flag : spec.flags) {
    const std::string name = "--" + flag.name;
    if (!flag.value_name.empty() && !arguments.empty() && arguments.back() == name) {
      message = fmt::format("{} needs a value ({}): {}", name, flag.value_name, flag.help);
    }
    const std::string* const assigned = find_prefix(arguments, name + "=");
    if (assigned == nullptr) continue;
    const std::string value = assigned->substr(name.size() + 1);
    if (flag.value_name.empty()) message = fmt::format("{} is '{}'; expected true or false", name, value);
    if (!flag.value_name.empty() && value.empty()) message = empty_value(flag);
  }
  throw UsageError(fmt::format("{}\nSee {} --help for all flags.", message, spec.name));
}

std::string single_value(const FlagSpec& flag, const std::vector<std::string>& given) {
  if (given.size() > 1) {
    throw UsageError(
        fmt::format("--{} is given {} times ({}); give it once", flag.name, given.size(), join_names(given, ", ")));
  }
  if (given.front().empty()) throw UsageError(empty_value(flag));
  return given.front();
}

// The text folded into lines that start at kHelpColumn.
std::string wrapped(std::string_view text) {
  constexpr std::size_t kWidth = 100 - kHelpColumn;
  std::string out;
  while (text.size() > kWidth) {
    std::size_t cut = text.rfind(' ', kWidth);
    if (cut == std::string_view::npos) cut = kWidth;
    out += std::string(text.substr(0, cut)) + "\n" + std::string(kHelpColumn, ' ');
    text.remove_prefix(std::min(cut + 1, text.size()));
  }
  return out + std::string(text);
}

}  // namespace

ParsedArguments parse_arguments(const CommandSpec& spec, const std::vector<std::string>& arguments) {
  CLI::App app;
  Values values;
  add_flags(app, spec, values);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    refuse_unreadable(spec, arguments, error.what());
  }
  ParsedArguments parsed;
  parsed.help = app.count("--help") > 0;
  if (parsed.help) return parsed;
  if (const std::vector<std::string> extras = app.remaining(); !extras.empty()) refuse_extra(spec, extras.front());
  for (const FlagSpec& flag : spec.flags) {
    const std::size_t count = app.count("--" + flag.name);
    if (count == 0) continue;
    if (!flag.value_name.empty()) {
      parsed.flags[flag.name] = single_value(flag, values.texts[flag.name]);
    } else if (const std::string* const odd = find_prefix(arguments, "--no-" + flag.name + "="); odd != nullptr) {
      throw UsageError(fmt::format("{} takes no value; write --{}=true or --{}=false", odd->substr(0, odd->find('=')),
                                   flag.name, flag.name));
    } else if (count > 1) {
      throw UsageError(fmt::format("--{0} or --no-{0} is given {1} times; give one of them once", flag.name, count));
    } else {
      parsed.flags[flag.name] = values.switches[flag.name] ? "true" : "false";
    }
  }
  parsed.positionals = values.positionals;
  for (const std::string& argument : parsed.positionals) {
    if (argument.empty()) throw UsageError(fmt::format("an argument of {} is empty", spec.name));
  }
  return parsed;
}

std::string help_text(const CommandSpec& spec) {
  std::string text = fmt::format("{}: {}\n\nUsage: {} [flags]{}\n", spec.name, spec.summary, spec.name,
                                 spec.positional_name.empty() ? "" : " " + spec.positional_name);
  if (!spec.positional_help.empty()) text += "  " + spec.positional_help + "\n";
  std::string group;
  for (const FlagSpec& flag : spec.flags) {
    if (flag.group != group) text += fmt::format("\n{}:\n", group = flag.group);
    std::string left = "  --" + flag.name + (flag.value_name.empty() ? "" : " " + flag.value_name);
    left.resize(std::max(left.size() + 1, kHelpColumn), ' ');
    text +=
        left + wrapped(flag.help + (flag.default_text.empty() ? "" : " (default: " + flag.default_text + ")")) + "\n";
  }
  text += "  -h, --help\n";
  if (!spec.example.empty()) text += "\nExample:\n  " + spec.example + "\n";
  return text;
}

}  // namespace heddle::tools
