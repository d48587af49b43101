#pragma once

namespace tigon::cuda {

// Whether libcudnn can be opened; TIGON_CUDNN_LIBRARY names the file, or the system looks for libcudnn.so.9.
bool cudnn_opens();

}  // namespace tigon::cuda
