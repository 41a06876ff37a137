// Where a training is, on the device: counters, learning rates and the ring of records that tell the host. A step that
// lives on these alone can be recorded once and replayed. Made by an optimiser; the updates of a backend read and move
// it; step/status_block reads the ring. It must not know optimisers or models.
#pragma once

#include <cstdint>
#include <span>

#include "../device/device_runtime.h"
#include "../tensor/tensor.h"
#include "op_params.h"

namespace heddle {

class StepState {
 public:
  // Counters and the only learning rate are 0. Throws: OutOfMemory, DeviceError.
  explicit StepState(Device device);
  // Waits for queued work that may still write to the ring.
  ~StepState();
  StepState(const StepState&) = delete;
  StepState& operator=(const StepState&) = delete;

  Device device() const { return counters_.device(); }
  Tensor& counters() noexcept { return counters_; }              // i64 (step_slot::kCount)
  Tensor& learning_rates() noexcept { return learning_rates_; }  // f32 (R), R >= 1
  // The ring, in memory that host and device reach: call number s (from 1) writes entry s % kStatusRecords.
  const StatusRecord* host_records() const noexcept { return static_cast<const StatusRecord*>(ring_.host); }
  StatusRecord* device_records() const noexcept { return static_cast<StatusRecord*>(ring_.device); }

  // The rates of an epoch's updates; the last one holds for all that follow. Queued like any work, and never to be
  // called inside a recorded step. Allocates if there are more than ever before, after which steps that were recorded
  // before are invalid: call it with the largest number first. Throws: InvalidArgument if there is none.
  void set_learning_rates(std::span<const double> rates);
  // Sets one counter; queued. Not inside a recorded step.
  void set(std::int64_t slot, std::int64_t value);
  // Of all work queued so far. Blocks on a GPU.
  std::int64_t read(std::int64_t slot) const;
  // The address of a counter on the device, for RandomStream::counter.
  const std::int64_t* address_of(std::int64_t slot) const { return counters_.device_data<std::int64_t>() + slot; }

 private:
  Tensor counters_, learning_rates_;
  HostBuffer ring_;
};

}  // namespace heddle
