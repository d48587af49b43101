# tigon_folder(<target> SOURCES … [SEES <targets of folders to its left>] [USES <third-party targets>])
#
# One target per folder. SEES carries the layering: it is what the folder may include and link. Sources compile once and
# serve the static library, the shared library and the tests.
add_library(tigon_flags INTERFACE)
target_compile_options(tigon_flags INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-Wall -Wextra -Werror -fvisibility=hidden>)
target_compile_options(tigon_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fvisibility-inlines-hidden>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees overlaps inside std::string's operator+ that are not there (GCC bug 105651).
  target_compile_options(tigon_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(TIGON_SANITIZE)
  # Lines are all that a report needs, and they compile faster than descriptions of every variable.
  target_compile_options(tigon_flags INTERFACE -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined
                                               -fno-sanitize-recover=all)
  target_link_options(tigon_flags INTERFACE -fsanitize=address,undefined)
  target_compile_definitions(tigon_flags INTERFACE TIGON_DEBUG_MEMORY)
endif()

function(tigon_folder target)
  cmake_parse_arguments(FOLDER "" "" "SOURCES;SEES;USES" ${ARGN})
  add_library(${target} OBJECT ${FOLDER_SOURCES})
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                              $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
  target_link_libraries(${target} PUBLIC ${FOLDER_SEES} PRIVATE tigon_flags ${FOLDER_USES})
  set_property(GLOBAL APPEND PROPERTY TIGON_FOLDERS ${target})
  set_property(GLOBAL APPEND PROPERTY TIGON_THIRD_PARTY ${FOLDER_USES})
endfunction()
