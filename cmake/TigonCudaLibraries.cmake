# cuBLASLt and cuDNN: from the CUDA toolkit, the system, or the packages that scripts/build put into
# build/cuda-packages (NVIDIA's wheels carry headers and libraries).
file(GLOB packages ${PROJECT_SOURCE_DIR}/build/cuda-packages/lib/python3*/site-packages)
set(TIGON_CUDA_PACKAGES "${packages}" CACHE PATH "A site-packages folder with NVIDIA's cublas, cudnn and cudnn-frontend")

find_path(TIGON_CUBLASLT_INCLUDE cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${TIGON_CUDA_PACKAGES}/nvidia/cu13/include)
find_library(TIGON_CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.13
             HINTS ${CUDAToolkit_LIBRARY_DIR} ${TIGON_CUDA_PACKAGES}/nvidia/cu13/lib)
if(NOT TIGON_CUBLASLT_INCLUDE OR NOT TIGON_CUBLASLT_LIBRARY)
  set(lacking "The CUDA backend needs cuBLASLt, and this CUDA toolkit has none. Run ./scripts/build cuda, which fetches it.")
  if(TIGON_CUDA STREQUAL "ON")
    message(FATAL_ERROR "${lacking}")
  endif()
  message(WARNING "${lacking} Building without CUDA.")
  set(TIGON_WITH_CUDA OFF)
  return()
endif()
add_library(tigon_cublaslt INTERFACE)
target_include_directories(tigon_cublaslt SYSTEM INTERFACE ${TIGON_CUBLASLT_INCLUDE})
target_link_libraries(tigon_cublaslt INTERFACE ${TIGON_CUBLASLT_LIBRARY})

# cuDNN is opened at run time, so only headers are needed.
find_path(TIGON_CUDNN_INCLUDE cudnn_graph.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${TIGON_CUDA_PACKAGES}/nvidia/cudnn/include)
find_path(TIGON_CUDNN_FRONTEND_INCLUDE cudnn_frontend.h HINTS ${TIGON_CUDA_PACKAGES}/include)
set(TIGON_WITH_CUDNN OFF)
if(TIGON_CUDNN_INCLUDE AND TIGON_CUDNN_FRONTEND_INCLUDE)
  set(TIGON_WITH_CUDNN ON)
  add_library(tigon_cudnn INTERFACE)
  target_include_directories(tigon_cudnn SYSTEM INTERFACE ${TIGON_CUDNN_INCLUDE} ${TIGON_CUDNN_FRONTEND_INCLUDE})
endif()

# CUPTI too.
find_path(TIGON_CUPTI_INCLUDE cupti.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_LIBRARY_ROOT}/extras/CUPTI/include
          ${TIGON_CUDA_PACKAGES}/nvidia/cu13/include)
set(TIGON_WITH_CUPTI OFF)
if(TIGON_CUPTI_INCLUDE)
  set(TIGON_WITH_CUPTI ON)
  add_library(tigon_cupti INTERFACE)
  target_include_directories(tigon_cupti SYSTEM INTERFACE ${TIGON_CUPTI_INCLUDE})
endif()
message(STATUS "Tigon: CUDA ${CUDAToolkit_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}, cuBLASLt ${TIGON_CUBLASLT_LIBRARY}, "
               "cuDNN attention ${TIGON_WITH_CUDNN}, CUPTI ${TIGON_WITH_CUPTI}")
