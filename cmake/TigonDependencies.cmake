# Third-party libraries, all from system packages. Each is linked in one folder (docs/dependencies.md).
find_package(fmt REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)

# Highway and oneDNN: plain search, because Debian's dnnl package file asks for OpenCL and hwy's name varies.
find_path(TIGON_HWY_INCLUDE hwy/highway.h REQUIRED)
find_library(TIGON_HWY_LIBRARY hwy REQUIRED)
add_library(tigon_hwy INTERFACE)
target_include_directories(tigon_hwy SYSTEM INTERFACE $<BUILD_INTERFACE:${TIGON_HWY_INCLUDE}>)
target_link_libraries(tigon_hwy INTERFACE ${TIGON_HWY_LIBRARY})
# AVX2, AVX-512, NEON and a portable fallback. Bits, not names, because names differ between releases: out are the SSE
# family (too old to matter), the refinements of AVX-512 and NEON (nothing here uses their instructions), and SVE, whose
# vectors have no size at compile time and so cannot stand in the structs of src/backend/cpu.
target_compile_definitions(tigon_hwy INTERFACE HWY_DISABLED_TARGETS=0xFFFF8D0)

find_path(TIGON_DNNL_INCLUDE dnnl.h REQUIRED)
find_library(TIGON_DNNL_LIBRARY dnnl REQUIRED)
add_library(tigon_dnnl INTERFACE)
target_include_directories(tigon_dnnl SYSTEM INTERFACE $<BUILD_INTERFACE:${TIGON_DNNL_INCLUDE}>)
target_link_libraries(tigon_dnnl INTERFACE ${TIGON_DNNL_LIBRARY})

# Headers only. Plain search as well, so that nothing of it reaches the installed package.
find_path(TIGON_JSON_INCLUDE nlohmann/json.hpp REQUIRED)
add_library(tigon_nlohmann_json INTERFACE)
target_include_directories(tigon_nlohmann_json SYSTEM INTERFACE $<BUILD_INTERFACE:${TIGON_JSON_INCLUDE}>)

find_path(TIGON_TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)
add_library(tigon_tomlplusplus INTERFACE)
target_include_directories(tigon_tomlplusplus SYSTEM INTERFACE $<BUILD_INTERFACE:${TIGON_TOMLPLUSPLUS_INCLUDE}>)

foreach(library pcre2 utf8proc)
  string(TOUPPER ${library} upper)
  find_path(TIGON_${upper}_INCLUDE ${library}.h REQUIRED)
  find_library(TIGON_${upper}_LIBRARY NAMES ${library}-8 ${library} REQUIRED)
  add_library(tigon_${library} INTERFACE)
  target_include_directories(tigon_${library} SYSTEM INTERFACE $<BUILD_INTERFACE:${TIGON_${upper}_INCLUDE}>)
  target_link_libraries(tigon_${library} INTERFACE ${TIGON_${upper}_LIBRARY})
endforeach()

find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)

# Optional: without it, files are read and written by pread and pwrite. The archive is taken where there is one, so that
# what needs none of it, the C library and the Python package, is not linked with it.
find_path(TIGON_URING_INCLUDE liburing.h)
find_library(TIGON_URING_LIBRARY NAMES liburing.a uring)
set(TIGON_WITH_URING OFF)
if(TIGON_URING_INCLUDE AND TIGON_URING_LIBRARY)
  set(TIGON_WITH_URING ON)
  add_library(tigon_uring INTERFACE)
  target_include_directories(tigon_uring SYSTEM INTERFACE $<BUILD_INTERFACE:${TIGON_URING_INCLUDE}>)
  target_link_libraries(tigon_uring INTERFACE ${TIGON_URING_LIBRARY})
  target_compile_definitions(tigon_uring INTERFACE $<BUILD_INTERFACE:TIGON_WITH_URING>)
endif()

# CUDA: AUTO takes it when nvcc is there.
set(TIGON_WITH_CUDA OFF)
if(NOT TIGON_CUDA STREQUAL "OFF")
  # Before enable_language: unset would mean sm_75 alone, and "native" needs a GPU at build time.
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # The last one is for chips yet to come.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 86-real 89-real 90a-real 90-virtual)
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit REQUIRED)
    set(TIGON_WITH_CUDA ON)
    # CMake 3.25 knows no CUDA20 dialect and would drop the flag in silence.
    if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
      list(APPEND CMAKE_CUDA_COMPILE_FEATURES cuda_std_20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    include(${CMAKE_CURRENT_LIST_DIR}/TigonCudaLibraries.cmake)
  elseif(TIGON_CUDA STREQUAL "ON")
    message(FATAL_ERROR "TIGON_CUDA=ON, but no CUDA compiler was found. Put nvcc on PATH, or use -DTIGON_CUDA=OFF.")
  endif()
endif()
message(STATUS "Tigon: CUDA backend ${TIGON_WITH_CUDA}, Highway ${TIGON_HWY_LIBRARY}, oneDNN ${TIGON_DNNL_LIBRARY}, io_uring ${TIGON_WITH_URING}")
