// The CUDA backend of one GPU: one .cpp per primitive family in this folder, under the names of engine/cpu. Contracts:
// engine/backend/backend.h. Made by the plugin's entry; nobody outside kernels/cuda knows it.
//
// A primitive queues kernels on current_stream(device()) and returns; it never waits, copies to the host or asks CUDA
// for memory (scratch is a Tensor from the caching allocator), so that each can be recorded into a graph.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>

#include "engine/backend/backend.h"

namespace heddle::cuda {

class CublasGemm;   // cublas_gemm.h, the only file that knows cuBLAS
class CudnnGraphs;  // cudnn_graph.h, the only file that knows cuDNN
class SplitTickets;

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(int index);
  ~CudaBackend() override;

  Device device() const noexcept override { return device_; }
  std::string description() const override;

  void fill(Tensor& y, double value) override;
  void cast(const Tensor& x, Tensor& y) override;
  void axpy(double alpha, const Tensor& x, Tensor& y) override;
  void unary(UnaryOp op, const Tensor& x, double a, double b, Tensor& y) override;
  void unary_backward(UnaryOp op, const Tensor& x, const Tensor& y, const Tensor& dy, double a, double b, Tensor& dx,
                      WriteMode mode) override;
  void binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& y) override;
  void where(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& y) override;

  void permute(const Tensor& x, std::span<const int> perm, Tensor& y) override;
  void copy_range(const Tensor& x, std::int64_t x_begin, Tensor& y, std::int64_t y_begin, int dim, std::int64_t n,
                  WriteMode mode) override;
  void index_select(const Tensor& x, const Tensor& index, Tensor& y) override;
  void index_add(const Tensor& x, const Tensor& index, Tensor& y) override;
  void gather(const Tensor& x, int dim, const Tensor& index, Tensor& y) override;
  void scatter_add(const Tensor& x, int dim, const Tensor& index, Tensor& y) override;

  void reduce(ReduceKind kind, const Tensor& x, std::uint32_t dim_mask, Tensor& y, WriteMode mode) override;
  void argmax(const Tensor& x, int dim, Tensor& y) override;

  void matmul(const Tensor& a, const Tensor& b, const MatmulParams& params, Tensor& y, WriteMode mode) override;
  void linear_forward(const Tensor& x, const Tensor& w, const Tensor& bias, bool relu, Tensor& y) override;
  void linear_backward_data(const Tensor& dy, const Tensor& w, const Tensor& relu_mask, Tensor& dx,
                            WriteMode mode) override;
  void linear_backward_weight(const Tensor& x, const Tensor& dy, Tensor& dw, Tensor* db, WriteMode mode) override;

  void conv2d_forward(const Tensor& x, const Tensor& w, const Tensor& bias, const Conv2dParams& params, bool relu,
                      Tensor& y) override;
  void conv2d_backward_data(const Tensor& dy, const Tensor& w, const Conv2dParams& params, const Tensor& relu_mask,
                            Tensor& dx, WriteMode mode) override;
  void conv2d_backward_weight(const Tensor& x, const Tensor& dy, const Conv2dParams& params, Tensor& dw, Tensor* db,
                              WriteMode mode) override;
  FusedConv2dPool* fused_conv2d_pool(const Tensor&, const Tensor&, const Conv2dPoolParams&) override { return nullptr; }

  void max_pool2d_forward(const Tensor& x, const Pool2dParams& params, bool relu, Tensor& y, Tensor& argmax) override;
  void max_pool2d_backward(const Tensor& dy, const Tensor& y, const Tensor& argmax, const Pool2dParams& params,
                           Tensor& dx, WriteMode mode) override;
  void avg_pool2d_forward(const Tensor& x, const Pool2dParams& params, Tensor& y) override;
  void avg_pool2d_backward(const Tensor& dy, const Pool2dParams& params, const Tensor& relu_mask, Tensor& dx,
                           WriteMode mode) override;
  void adaptive_pool2d_forward(PoolKind kind, const Tensor& x, Tensor& y, Tensor& argmax) override;
  void adaptive_pool2d_backward(PoolKind kind, const Tensor& dy, const Tensor& argmax, Tensor& dx,
                                WriteMode mode) override;

  Tensor batch_norm_mask(const BatchNormForward& operands) override;
  void batch_norm_forward(BatchNormForward& operands) override;
  void batch_norm_statistics(const Tensor& x, Tensor& exchange) override;
  void batch_norm_backward(BatchNormBackward& operands) override;
  void batch_norm_backward_sums(BatchNormBackward& operands, Tensor& exchange) override;
  void batch_norm_backward_data(BatchNormBackward& operands, const Tensor& exchanged) override;

  void softmax_forward(const Tensor& x, bool log, Tensor& y) override;
  void softmax_backward(const Tensor& y, const Tensor& dy, bool log, Tensor& dx, WriteMode mode) override;
  void cross_entropy(const Tensor& logits, const Tensor& labels, const Tensor& class_weight,
                     const CrossEntropyParams& params, CrossEntropyResult& result) override;

  void dropout(const Tensor& x, double p, const RandomStream& random, Tensor& y, WriteMode mode) override;
  void random_uniform(double low, double high, const RandomStream& random, Tensor& y) override;
  void random_normal(double mean, double stddev, const RandomStream& random, Tensor& y) override;

  void write_gradients(Tensor& gradients, std::span<const GradientSource> sources) override;
  void prepare_update(const Tensor& gradients, const Tensor& tail, double max_norm, const UpdateParams& params,
                      StepState& state, Tensor& scalars) override;
  void sgd_update(UpdateTensors& tensors, std::span<const SgdRange> ranges, const UpdateParams& params,
                  StepState& state) override;
  void adam_update(UpdateTensors& tensors, std::span<const AdamRange> ranges, const UpdateParams& params,
                   StepState& state) override;

  void gather_images(const Tensor& images, const Tensor& labels, const Tensor& order, Tensor& cursor,
                     const GatherImagesParams& params, Tensor& y, Tensor& batch_labels) override;
  void hash(std::span<const Tensor> tensors, Tensor& y) override;

 private:
  // The stream that work of the calling thread goes to. Makes the GPU the thread's current CUDA device.
  cudaStream_t stream() const;

  Device device_;
  std::unique_ptr<CublasGemm> gemm_;
  std::unique_ptr<CudnnGraphs> graphs_;
  std::unique_ptr<SplitTickets> tickets_;
};

}  // namespace heddle::cuda
