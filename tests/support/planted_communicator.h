// A communicator that does what another one does, except where a test plants a fault.
#pragma once

#include <functional>
#include <string_view>

#include "engine/comm/communicator.h"

namespace heddle::testing {

// What replaces a call; empty: nothing. Each gets the communicator that works.
struct PlantedCalls {
  std::function<void(comm::Communicator& real, Tensor& x, comm::ReduceOp op, std::string_view what)> all_reduce;
  std::function<void(comm::Communicator& real, Tensor& x, int root, std::string_view what)> broadcast;
  std::function<void(comm::Communicator& real, const Tensor& x, Tensor& y, std::string_view what)> all_gather;
};

class PlantedCommunicator final : public comm::Communicator {
 public:
  PlantedCommunicator(comm::Communicator& real, PlantedCalls planted) : real_(real), planted_(std::move(planted)) {}

  const char* name() const noexcept override { return real_.name(); }
  int rank() const noexcept override { return real_.rank(); }
  int world_size() const noexcept override { return real_.world_size(); }
  void abort(const std::string& reason) noexcept override { real_.abort(reason); }

 protected:
  void do_all_reduce(Tensor& x, comm::ReduceOp op, std::string_view what) override {
    if (planted_.all_reduce) return planted_.all_reduce(real_, x, op, what);
    real_.all_reduce(x, op, what);
  }
  void do_broadcast(Tensor& x, int root, std::string_view what) override {
    if (planted_.broadcast) return planted_.broadcast(real_, x, root, what);
    real_.broadcast(x, root, what);
  }
  void do_all_gather(const Tensor& x, Tensor& y, std::string_view what) override {
    if (planted_.all_gather) return planted_.all_gather(real_, x, y, what);
    real_.all_gather(x, y, what);
  }
  void do_reduce_scatter(const Tensor& x, Tensor& y, comm::ReduceOp op, std::string_view what) override {
    real_.reduce_scatter(x, y, op, what);
  }
  void do_barrier(std::string_view what) override { real_.barrier(what); }

 private:
  comm::Communicator& real_;
  PlantedCalls planted_;
};

}  // namespace heddle::testing
