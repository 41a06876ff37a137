// The CUDA runtime's copies and fills.
#include <cstring>
#include <memory>

#include "tests/cudasim/api.h"
#include "tests/cudasim/device_fault.h"

using namespace cudasim;

namespace {

enum class Place { device, pinned, pageable };

Place place_of(const void* data) {
  if (is_device_pointer(data)) return Place::device;
  return find_allocation(data) != nullptr ? Place::pinned : Place::pageable;
}

// Rows of bytes; a plain copy has one row.
struct Area {
  void* destination = nullptr;
  std::size_t destination_pitch = 0;
  const void* source = nullptr;
  std::size_t source_pitch = 0;
  std::size_t width = 0;
  std::size_t height = 1;

  char* destination_row(std::size_t row) const { return static_cast<char*>(destination) + row * destination_pitch; }
  const char* source_row(std::size_t row) const { return static_cast<const char*>(source) + row * source_pitch; }
};

// Where simulator code finds the bytes when the copy runs.
template <class T>
T* operand(T* data, std::size_t nbytes, bool write) {
  return place_of(data) == Place::pageable ? data : host_view(data, nbytes, write);
}

bool direction_is_right(cudaMemcpyKind kind, bool from_device, bool to_device) {
  switch (kind) {
    case cudaMemcpyHostToHost: return !from_device && !to_device;
    case cudaMemcpyHostToDevice: return !from_device && to_device;
    case cudaMemcpyDeviceToHost: return from_device && !to_device;
    case cudaMemcpyDeviceToDevice: return from_device && to_device;
    default: return kind == cudaMemcpyDefault;
  }
}

// Makes a reader notice that the copy into pinned memory has not happened yet, unless that could break a legal program:
// an operation in the queue may still read these bytes.
void spoil_destination(const Area& area) {
  const Allocation* allocation = find_allocation(area.destination);
  if ((allocation->flags & cudaHostAllocMapped) != 0 || allocation->region == 0) return;
  for (std::size_t row = 0; row < area.height; ++row) {
    if (pending_use(area.destination_row(row), area.width)) return;
  }
  for (std::size_t row = 0; row < area.height; ++row) std::memset(area.destination_row(row), 0xff, area.width);
}

struct Transfer {
  Area area;
  cudaMemcpyKind kind = cudaMemcpyDefault;
  cudaStream_t stream = nullptr;
  const char* name = "";
  bool blocking = false;
};

cudaError_t transfer(const Transfer& what) {
  const Area& area = what.area;
  const std::shared_ptr<Stream> stream = find_stream(what.stream);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (area.width == 0 || area.height == 0) return cudaSuccess;
  if (area.destination == nullptr || area.source == nullptr) return cudaErrorInvalidValue;
  if (area.height > 1 && (area.width > area.destination_pitch || area.width > area.source_pitch)) {
    return cudaErrorInvalidPitchValue;
  }
  const Place from = place_of(area.source);
  const Place to = place_of(area.destination);
  if (!direction_is_right(what.kind, from == Place::device, to == Place::device)) return cudaErrorInvalidValue;
  if (what.blocking) {
    if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
  }
  // The driver would have to wait for the copy, or stage it at the call.
  if (stream->capture != nullptr && (from == Place::pageable || to == Place::pageable)) {
    return refuse(*stream, cudaErrorStreamCaptureUnsupported);
  }
  const auto op = std::make_shared<Op>();
  op->name = what.name;
  op->kind = OpKind::copy;
  for (std::size_t row = 0; row < area.height; ++row) {
    if (from != Place::pageable) op->accesses.push_back({area.source_row(row), area.width, false});
    if (to != Place::pageable) op->accesses.push_back({area.destination_row(row), area.width, true});
  }
  for (const Access& access : op->accesses) {
    if (!is_reachable(access.data, access.nbytes)) return cudaErrorInvalidValue;
  }
  std::shared_ptr<std::vector<char>> staged;
  if (from == Place::pageable) {
    staged = std::make_shared<std::vector<char>>(area.width * area.height);
    for (std::size_t row = 0; row < area.height; ++row) {
      std::memcpy(staged->data() + row * area.width, area.source_row(row), area.width);
    }
  }
  op->body = [area, staged] {
    for (std::size_t row = 0; row < area.height; ++row) {
      const char* source =
          staged != nullptr ? staged->data() + row * area.width : operand(area.source_row(row), area.width, false);
      std::memmove(operand(area.destination_row(row), area.width, true), source, area.width);
    }
  };
  if (to == Place::pinned && stream->capture == nullptr) spoil_destination(area);
  if (const cudaError_t error = queue(stream, op, nullptr); error != cudaSuccess) return error;
  const bool host_waits = what.blocking ? !(from == Place::device && to == Place::device) : to == Place::pageable;
  if (!host_waits) return cudaSuccess;
  count_host_wait();
  wait_for(op);
  return after_wait(stream->device);
}

cudaError_t fill(void* data, int value, std::size_t nbytes, cudaStream_t handle, const char* name) {
  const std::shared_ptr<Stream> stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (nbytes == 0) return cudaSuccess;
  if (!is_reachable(data, nbytes)) return cudaErrorInvalidValue;
  const auto op = std::make_shared<Op>();
  op->name = name;
  op->kind = OpKind::fill;
  op->accesses = {{data, nbytes, true}};
  op->body = [=] { std::memset(host_view(static_cast<char*>(data), nbytes, true), value, nbytes); };
  return queue(stream, op, nullptr);
}

Area plain(void* destination, const void* source, std::size_t nbytes) {
  return {destination, nbytes, source, nbytes, nbytes, 1};
}

// Whether data is memory of this device.
bool belongs_to(const void* data, int index) { return device_of_address(data) == index; }

}  // namespace

CUDART cudaError_t cudaMemcpyAsync(void* destination, const void* source, std::size_t nbytes, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
  return call("cudaMemcpyAsync", [&] {
    return transfer({plain(destination, source, nbytes), kind, stream, "cudaMemcpyAsync", false});
  });
}

CUDART cudaError_t cudaMemcpy(void* destination, const void* source, std::size_t nbytes, cudaMemcpyKind kind) {
  return call("cudaMemcpy", [&] {
    return transfer({plain(destination, source, nbytes), kind, nullptr, "cudaMemcpy", true});
  });
}

CUDART cudaError_t cudaMemcpy2DAsync(void* destination, std::size_t destination_pitch, const void* source,
                                     std::size_t source_pitch, std::size_t width, std::size_t height,
                                     cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpy2DAsync", [&] {
    return transfer({{destination, destination_pitch, source, source_pitch, width, height},
                     kind,
                     stream,
                     "cudaMemcpy2DAsync",
                     false});
  });
}

CUDART cudaError_t cudaMemcpyPeerAsync(void* destination, int destination_device, const void* source, int source_device,
                                       std::size_t nbytes, cudaStream_t stream) {
  return call("cudaMemcpyPeerAsync", [&] {
    if (!belongs_to(destination, destination_device) || !belongs_to(source, source_device))
      return cudaErrorInvalidValue;
    return transfer(
        {plain(destination, source, nbytes), cudaMemcpyDeviceToDevice, stream, "cudaMemcpyPeerAsync", false});
  });
}

CUDART cudaError_t cudaMemcpyPeer(void* destination, int destination_device, const void* source, int source_device,
                                  std::size_t nbytes) {
  return call("cudaMemcpyPeer", [&] {
    if (!belongs_to(destination, destination_device) || !belongs_to(source, source_device))
      return cudaErrorInvalidValue;
    return transfer({plain(destination, source, nbytes), cudaMemcpyDeviceToDevice, nullptr, "cudaMemcpyPeer", true});
  });
}

CUDART cudaError_t cudaMemsetAsync(void* data, int value, std::size_t nbytes, cudaStream_t stream) {
  return call("cudaMemsetAsync", [&] { return fill(data, value, nbytes, stream, "cudaMemsetAsync"); });
}

CUDART cudaError_t cudaMemset(void* data, int value, std::size_t nbytes) {
  return call("cudaMemset", [&] {
    if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
    return fill(data, value, nbytes, nullptr, "cudaMemset");
  });
}
