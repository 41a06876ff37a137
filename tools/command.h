// What main knows of the subcommands: a row each in command_list.cpp, a file each for the work.
#pragma once

#include <string>
#include <vector>

#include "tools/console.h"

namespace heddle::tools {

namespace exit_code {
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
}  // namespace exit_code

// What a subcommand gets to work with.
struct CommandContext {
  Console& out;
  Console& err;
  std::vector<std::string> arguments;  // after the subcommand's name
};

struct Command {
  const char* name;
  const char* summary;
  // What it prints is all it does, so it failed when that cannot be written. Training goes on without a reader.
  bool output_is_result;
  // Returns the exit code. Throws: UsageError, Error.
  int (*run)(CommandContext& context);
};

const std::vector<Command>& command_list();

int run_train(CommandContext& context);
int run_verify_resume(CommandContext& context);
int run_eval(CommandContext& context);
int run_predict(CommandContext& context);
int run_bench(CommandContext& context);
int run_doctor(CommandContext& context);
int run_data(CommandContext& context);
int run_report(CommandContext& context);

}  // namespace heddle::tools
