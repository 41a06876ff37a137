// Describes a subcommand's flags and parses an argument list into values. The only user of the flag library, so that
// the other files compile fast and say what they offer in tables.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::tools {

struct FlagSpec {
  std::string name;        // without "--"
  std::string value_name;  // empty: a switch, which also exists as --no-NAME and --NAME=true|false
  std::string help;
  std::string default_text;  // shown in --help; empty: none
  std::string group = "Options";
};

struct CommandSpec {
  std::string name;     // "heddle train"
  std::string summary;  // one line
  std::string example;  // shown at the end of --help
  std::vector<FlagSpec> flags;
  std::string positional_name;  // "IMAGE..."; empty: none are taken
  std::string positional_help;
};

struct ParsedArguments {
  bool help = false;                         // --help was given: print help_text()
  std::map<std::string, std::string> flags;  // those given; switches hold "true" or "false"
  std::vector<std::string> positionals;

  bool has(const std::string& name) const { return flags.contains(name); }
  // A switch that is on.
  bool is_on(const std::string& name) const { return get(name) == "true"; }
  // Empty if the flag was not given.
  std::string get(const std::string& name) const {
    const auto found = flags.find(name);
    return found == flags.end() ? std::string() : found->second;
  }
};

// Parses the arguments that follow the subcommand's name. Throws: UsageError for an unknown flag (with the nearest),
// one without its value or with an empty one, and one that is given twice.
ParsedArguments parse_arguments(const CommandSpec& spec, const std::vector<std::string>& arguments);

std::string help_text(const CommandSpec& spec);

}  // namespace heddle::tools
