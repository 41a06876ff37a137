// Helper threads of one calling thread, behind parallel_for. Not installed.
//
// Why not OpenMP regions: at the end of a region every thread of the team must have arrived. On a machine with other
// work to do, a helper that the scheduler has put aside then holds up each of the dozens of regions of a training step
// for a time slice, and two threads were measured ten times slower than one. Here the calling thread takes over every
// part that no helper has begun, so a helper that is late costs nothing, and idle helpers sleep after a short spin.
#pragma once

#include <memory>

namespace heddle {

class ThreadPool {
 public:
  using PartFunction = void (*)(void* context, int part);

  ThreadPool() = default;
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // The calling thread's own pool; its helpers end with the thread.
  static ThreadPool& local();

  // Calls function(context, part) once for every part of [0, parts), on the calling thread and up to parts - 1 helpers,
  // and returns when all have returned. function must not throw. parts <= kMaxParts. Not reentrant.
  void run(int parts, PartFunction function, void* context);

  static constexpr int kMaxParts = 4096;

 private:
  struct Shared;
  void start_helpers(int wanted);

  std::shared_ptr<Shared> shared_;  // helpers hold it too, so that nobody needs to wait for them to end
  int helpers_ = 0;
};

}  // namespace heddle
