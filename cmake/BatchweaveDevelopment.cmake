# Settings of the project's own tests, examples and benchmarks; nothing here reaches a consumer.
set(CMAKE_CXX_EXTENSIONS OFF)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(BATCHWEAVE_CCACHE ccache)
if(BATCHWEAVE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${BATCHWEAVE_CCACHE}")
endif()

add_library(batchweave_development INTERFACE)
target_link_libraries(batchweave_development INTERFACE batchweave::batchweave)
target_compile_options(batchweave_development INTERFACE -Wall -Wextra -Wpedantic -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False alarm of g++ 12 in Asio's awaitable frames.
  target_compile_options(batchweave_development INTERFACE -Wno-mismatched-new-delete)
endif()
if(BATCHWEAVE_WERROR)
  target_compile_options(batchweave_development INTERFACE -Werror)
endif()

set(BATCHWEAVE_SANITIZE "" CACHE STRING "Sanitizers of tests, examples and benchmarks: address,undefined or thread")
if(BATCHWEAVE_SANITIZE)
  target_compile_options(batchweave_development INTERFACE -fsanitize=${BATCHWEAVE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(batchweave_development INTERFACE -fsanitize=${BATCHWEAVE_SANITIZE})
  if(BATCHWEAVE_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(batchweave_development INTERFACE -Wno-tsan)  # Asio's fences, which no test relies on
  endif()
endif()
