# What each instruction set's file is compiled for; dispatch.cpp asks the CPU before it is called. All
# other files are built for the ABI's floor. CSRC: the folder of the files.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set_source_files_properties(${CSRC}/avx2.cpp PROPERTIES COMPILE_OPTIONS "-mavx2;-mpopcnt")
  # GCC 12 takes its own intrinsics' undefined inputs for mistakes.
  set_source_files_properties(${CSRC}/avx512.cpp PROPERTIES COMPILE_OPTIONS
    "-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vbmi;-mavx512vnni;-mavx512vpopcntdq;-mgfni;-Wno-uninitialized;-Wno-maybe-uninitialized")
endif()
