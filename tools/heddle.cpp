// The program: chooses the subcommand, prints what went wrong, and turns it into an exit code.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <new>

#include "engine/core/error.h"
#include "engine/core/version.h"
#include "tools/command.h"
#include "tools/suggest.h"
#include "tools/usage_error.h"

namespace heddle::tools {
namespace {

std::string help() {
  std::string text = fmt::format(
      "heddle {}: train small image models, and look at what they do\n\nUsage: heddle COMMAND [flags]\n\nCommands:\n",
      version());
  for (const Command& command : command_list()) text += fmt::format("  {:<14} {}\n", command.name, command.summary);
  return text +
         "\nheddle COMMAND --help explains a command and shows an example.\n"
         "Exit codes: 0 done, 1 failed, 2 wrong usage, 129, 130 or 143 interrupted: what a training had is "
         "saved,\nunless it "
         "had not begun or a second signal came.\n\n"
         "Example:\n  heddle train --model lenet --preset best\n";
}

const Command* find_command(const std::string& name) {
  for (const Command& command : command_list()) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

// Done unless the output could not be written. A reader that went away is its own choice and needs no message.
int check_output(Console& out, Console& err) {
  out.flush();
  if (out.error() == 0) return exit_code::kDone;
  if (out.error() != EPIPE) err.line(fmt::format("heddle: standard output: {}", std::strerror(out.error())));
  return exit_code::kFailed;
}

int dispatch(int argc, char** argv, Console& out, Console& err) {
  if (argc < 2) {
    err.write(help());
    return exit_code::kUsage;
  }
  const std::string name = argv[1];
  if (name == "help" && argc == 3 && find_command(argv[2]) != nullptr) {
    CommandContext context{out, err, {"--help"}};
    find_command(argv[2])->run(context);
    return check_output(out, err);
  }
  const bool asks_for_help = name == "--help" || name == "-h" || name == "help";
  if ((asks_for_help || name == "--version") && argc > 2) {
    throw UsageError(fmt::format("heddle {} takes no argument '{}'{}", name, argv[argc > 3 ? 3 : 2],
                                 name == "help" ? ", only the name of one command" : ""));
  }
  if (asks_for_help) {
    out.write(help());
    return check_output(out, err);
  }
  if (name == "--version") {
    out.line(fmt::format("heddle {}", version()));
    return check_output(out, err);
  }
  const Command* const command = find_command(name);
  if (command == nullptr) {
    std::vector<std::string> names;
    for (const Command& known : command_list()) names.emplace_back(known.name);
    throw UsageError(
        fmt::format("unknown command '{}'; expected one of {}{}", name, join_names(names), did_you_mean(name, names)));
  }
  CommandContext context{out, err, std::vector<std::string>(argv + 2, argv + argc)};
  const int code = command->run(context);
  return code == exit_code::kDone && command->output_is_result ? check_output(out, err) : code;
}

int run(int argc, char** argv) {
  Console out(STDOUT_FILENO), err(STDERR_FILENO);
  try {
    return dispatch(argc, argv, out, err);
  } catch (const UsageError& error) {
    err.line(fmt::format("heddle: {}", error.what()));
    return exit_code::kUsage;
  } catch (const std::bad_alloc&) {
    err.line("heddle: out of host memory; try a smaller --batch-size");
    return exit_code::kFailed;
  } catch (const std::exception& error) {
    err.line(fmt::format("heddle: {}", error.what()));
    return exit_code::kFailed;
  }
}

}  // namespace
}  // namespace heddle::tools

int main(int argc, char** argv) {
  heddle::tools::open_missing_standard_files();
  // Writing to a pipe without a reader, or beyond a file-size limit, is an error to report, not the end of the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  return heddle::tools::run(argc, argv);
}
