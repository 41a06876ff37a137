// One execution plan of cuDNN: made from the configuration of an engine, written down and made again from that, and run
// on memory. Which plan a graph gets is cudnn_graph.cpp's matter. Only the cudnn_* files include this.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "kernels/cuda/cudnn_builders.h"
#include "kernels/cuda/cudnn_descriptor.h"
#include "kernels/cuda/cudnn_graph.h"
#include "kernels/cuda/cudnn_plan_cache.h"

namespace heddle::cuda {

// A plan that is ready to run.
struct Plan {
  CudnnDescriptor plan;
  CudnnDescriptor configuration;
  std::int64_t workspace_nbytes = 0;
};

// Makes the plan of an engine configuration, unless cuDNN cannot or it needs too much scratch.
std::optional<Plan> make_plan(CudnnDescriptor configuration, cudnnHandle_t handle, std::int64_t workspace_limit);

// What a file keeps of a plan. Throws: DeviceError.
StoredPlan stored(const Plan& plan);
// The plan that a file names; nothing if this cuDNN does not have it.
std::optional<Plan> restored(const StoredPlan& stored_plan, const OperationGraph& graph, cudnnHandle_t handle,
                             std::int64_t workspace_limit);

// The memory that a plan runs on. workspace: the plan's scratch, or null.
class VariantPack {
 public:
  VariantPack(std::span<const GraphTensor> tensors, void* workspace);
  cudnnBackendDescriptor_t get() const noexcept { return pack_.get(); }

 private:
  CudnnDescriptor pack_;
};

// Whether what is queued on the stream is recorded instead of done.
bool is_recorded(cudaStream_t stream);

// Whether another plan can still compute what one was to compute that failed while it ran: not if that one has added to
// a part of it.
enum class Repeatable { yes, no };

// Queues a plan on the handle's stream. False if it failed and another plan can be tried; outputs may be written in
// part then. Throws: DeviceError, NotSupported if none can: the GPU works no more, the stream records (the recording is
// spoilt then), or the run cannot be repeated.
bool execute(const Plan& plan, const VariantPack& pack, cudnnHandle_t handle, cudaStream_t stream,
             Repeatable repeatable = Repeatable::yes);

}  // namespace heddle::cuda
