# Installs the build into a fresh prefix and builds the examples against it, as a user would.
#   cmake -DBUILD=<build folder> -DEXAMPLES=<examples/embed> -DWORK=<scratch folder> -P run.cmake
function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE failed OUTPUT_VARIABLE out ERROR_VARIABLE out)
  if(failed)
    message(FATAL_ERROR "failed: ${ARGV}\n${out}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${EXAMPLES} -B ${WORK}/build -G Ninja -DCMAKE_PREFIX_PATH=${WORK}/prefix
    -DCMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${WORK}/build)
foreach(program loss planned_step train_llama)
  run(${WORK}/build/${program})
endforeach()
run(${WORK}/prefix/bin/tigon --version)
