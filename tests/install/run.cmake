# Installs the build into a fresh prefix and builds the examples against it, as a user would, also in a project without C++;
# and configures a project that takes the source tree in.
#   cmake -DBUILD=<build folder> -DSOURCE=<source tree> -DWORK=<scratch folder> -P run.cmake
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE failed OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(failed)
    message(FATAL_ERROR "failed: ${ARGV}\n${out}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE}/examples/embed -B ${WORK}/build -G Ninja -DCMAKE_PREFIX_PATH=${WORK}/prefix
    -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${WORK}/build)
foreach(program loss planned_step train_llama)
  run(${WORK}/build/${program})
endforeach()
run(${WORK}/prefix/bin/tigon --version)

file(WRITE ${WORK}/c/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(c LANGUAGES C)
find_package(tigon REQUIRED)
add_executable(loss ${SOURCE}/examples/embed/loss.c)
target_link_libraries(loss PRIVATE tigon::c)
")
run(${CMAKE_COMMAND} -S ${WORK}/c -B ${WORK}/c/build -G Ninja -DCMAKE_PREFIX_PATH=${WORK}/prefix)
run(${CMAKE_COMMAND} --build ${WORK}/c/build)
run(${WORK}/c/build/loss)

file(WRITE ${WORK}/inside/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)
project(inside LANGUAGES C CXX)
add_subdirectory(${SOURCE} tigon)
add_executable(loss ${SOURCE}/examples/embed/loss.c)
target_link_libraries(loss PRIVATE tigon::c)
add_executable(planned_step ${SOURCE}/examples/embed/planned_step.cpp)
target_link_libraries(planned_step PRIVATE tigon::tigon)
")
run(${CMAKE_COMMAND} -S ${WORK}/inside -B ${WORK}/inside/build -G Ninja -DTIGON_CUDA=OFF)
