# cmake --install: headers, both libraries, the program, and a package file so that find_package(tigon) gives
# tigon::tigon (C++) and tigon::c (the C ABI).
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/tigon)

install(DIRECTORY include/tigon DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# Apart, because a project in C alone can find no more than the first.
install(TARGETS tigon_capi EXPORT tigon_c_targets)
install(TARGETS tigon_cpp tigon_hwy tigon_dnnl tigon_nlohmann_json tigon_tomlplusplus tigon_pcre2 tigon_utf8proc
        EXPORT tigon_targets)
if(TIGON_WITH_URING)
  install(TARGETS tigon_uring EXPORT tigon_targets)
endif()
if(TIGON_APP)
  install(TARGETS tigon_app)
endif()
if(TIGON_WITH_CUDA)
  install(TARGETS tigon_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(EXPORT tigon_c_targets NAMESPACE tigon:: DESTINATION ${package_dir})
install(EXPORT tigon_targets NAMESPACE tigon:: DESTINATION ${package_dir})

configure_package_config_file(cmake/tigonConfig.cmake.in ${PROJECT_BINARY_DIR}/tigonConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tigonConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tigonConfig.cmake ${PROJECT_BINARY_DIR}/tigonConfigVersion.cmake
        DESTINATION ${package_dir})
