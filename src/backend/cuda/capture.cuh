#pragma once

#include "backend/cuda/launch.cuh"

// What an op needs to know of a caller who records a CUDA graph.
namespace tigon::cuda {

inline bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "graph capture");
  return status != cudaStreamCaptureStatusNone;
}

// For calls that a thread which records a graph may not make otherwise, such as taking memory or loading code.
class AllowInCapture {
 public:
  AllowInCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~AllowInCapture() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  AllowInCapture(const AllowInCapture&) = delete;
  AllowInCapture& operator=(const AllowInCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace tigon::cuda
