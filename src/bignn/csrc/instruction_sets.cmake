# INSTRUCTION_SET_FILES: the files of the instruction sets that this architecture may have, each with
# what it is compiled for; dispatch.cpp asks the CPU before they are called. All other files are
# built for the ABI's floor. CSRC: the folder of the files.
set(INSTRUCTION_SET_FILES)
# What all files are compiled with. No fused multiply-add: results are defined to the last bit, and
# equal on every instruction set.
set(KERNEL_OPTIONS -Wall -Wextra -O3 -ffp-contract=off -fno-math-errno)

function(add_instruction_set file)  # flags...
  set_source_files_properties(${CSRC}/${file} PROPERTIES COMPILE_OPTIONS "${ARGN}")
  set(INSTRUCTION_SET_FILES ${INSTRUCTION_SET_FILES} ${CSRC}/${file} PARENT_SCOPE)
endfunction()

add_instruction_set(portable.cpp)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_instruction_set(avx2.cpp -mavx2 -mpopcnt)
  add_instruction_set(avx2_vnni.cpp -mavx2 -mpopcnt)
  add_instruction_set(avx2_vnni_evex.cpp -mavx2 -mpopcnt)
  # GCC 12 takes its own intrinsics' undefined inputs for mistakes.
  add_instruction_set(avx512.cpp -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vbmi -mavx512vnni
    -mavx512vpopcntdq -mgfni -Wno-uninitialized -Wno-maybe-uninitialized)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  add_instruction_set(neon.cpp)
  add_instruction_set(neon_dot.cpp -march=armv8.2-a+dotprod)
endif()
