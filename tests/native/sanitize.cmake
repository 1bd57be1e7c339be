# Makes the project's own build one with AddressSanitizer and UndefinedBehaviorSanitizer; given to
# cmake as CMAKE_PROJECT_INCLUDE by `make sanitize`. Deferred until the target is there, and so
# placed after its own options: -O1 instead of -O3, so that reports name functions.
cmake_language(DEFER CALL target_compile_options _native PRIVATE
  -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all)
cmake_language(DEFER CALL target_link_options _native PRIVATE -fsanitize=address,undefined)
cmake_language(DEFER CALL set_target_properties _native PROPERTIES
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bignn)
