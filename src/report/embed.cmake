# cmake -DOUT=file.cpp -DHTML=… -DSTYLE=… -DSCRIPT=a.js|b.js -DLIBRARY=… -DLICENCE=… -P embed.cmake
# The page's parts as texts of a C++ file.
set(text "#include \"report/page_parts.hpp\"\n\nnamespace tigon::report {\n\n")
foreach(part html style script library licence)
  string(TOUPPER ${part} variable)
  string(REPLACE "|" ";" files "${${variable}}")
  set(content "")
  foreach(file IN LISTS files)
    file(READ "${file}" one)
    string(APPEND content "${one}\n")
  endforeach()
  string(APPEND text "const std::string_view page_${part} = R\"tigon_page(${content})tigon_page\";\n")
endforeach()
file(WRITE "${OUT}" "${text}\n}  // namespace tigon::report\n")
