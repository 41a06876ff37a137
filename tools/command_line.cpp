#include "tools/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

constexpr std::size_t kHelpColumn = 32;

// What the flag library fills in; addresses must not move after the flags were added.
struct Values {
  std::map<std::string, std::string> texts;
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
      app.add_option("--" + flag.name, values.texts[flag.name])->take_last();
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
    throw UsageError(fmt::format("{}\nSee {} --help for all flags.", error.what(), spec.name));
  }
  ParsedArguments parsed;
  parsed.help = app.count("--help") > 0;
  if (parsed.help) return parsed;
  if (const std::vector<std::string> extras = app.remaining(); !extras.empty()) refuse_extra(spec, extras.front());
  for (const auto& [name, text] : values.texts) {
    if (app.count("--" + name) > 0) parsed.flags[name] = text;
  }
  for (const auto& [name, on] : values.switches) {
    if (app.count("--" + name) > 0) parsed.flags[name] = on ? "true" : "false";
  }
  parsed.positionals = values.positionals;
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
