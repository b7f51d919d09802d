# Finds what the headers need. Also installed: the package configuration file includes it.
#
# Boost is searched for here and not with find_package(Boost): only headers are needed, several versions may be installed, and the first
# one on the path may be too old (Debian 12 has 1.74 beside 1.81). Hints: Boost_ROOT or BOOST_ROOT (variable or environment), CMAKE_PREFIX_PATH.
set(BATCHWEAVE_BOOST_MINIMUM 108100)

function(_batchweave_boost_version folder out)
  set(found 0)
  if(EXISTS "${folder}/boost/version.hpp")
    file(STRINGS "${folder}/boost/version.hpp" line REGEX "^#define BOOST_VERSION [0-9]+")
    string(REGEX MATCH "[0-9]+" found "${line}")
  endif()
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

function(_batchweave_boost_is_new_enough result folder)
  _batchweave_boost_version("${folder}" found)
  if(found LESS BATCHWEAVE_BOOST_MINIMUM)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

if(NOT TARGET batchweave_boost_headers)
  file(GLOB _batchweave_versioned LIST_DIRECTORIES true "/usr/include/boost[0-9-]*" "/usr/local/include/boost-*" "/opt/boost*/include" "/usr/local/boost*/include")
  find_path(BATCHWEAVE_BOOST_INCLUDE_DIR boost/asio/awaitable.hpp
    HINTS ${Boost_ROOT} ${BOOST_ROOT} ENV Boost_ROOT ENV BOOST_ROOT
    PATHS ${_batchweave_versioned} PATH_SUFFIXES include
    VALIDATOR _batchweave_boost_is_new_enough
    DOC "Folder that holds boost/version.hpp of Boost 1.81 or newer")
  if(NOT BATCHWEAVE_BOOST_INCLUDE_DIR)
    message(FATAL_ERROR "batchweave needs the headers of Boost 1.81 or newer. "
      "Debian 12: apt-get install libboost1.81-dev; Debian 13: libboost1.83-dev or libboost1.88-dev; elsewhere set Boost_ROOT.")
  endif()
  _batchweave_boost_version("${BATCHWEAVE_BOOST_INCLUDE_DIR}" _batchweave_boost)
  if(_batchweave_boost LESS BATCHWEAVE_BOOST_MINIMUM)
    message(FATAL_ERROR "BATCHWEAVE_BOOST_INCLUDE_DIR=${BATCHWEAVE_BOOST_INCLUDE_DIR} holds Boost version ${_batchweave_boost}; batchweave needs 108100 (1.81) or newer.")
  endif()
  add_library(batchweave_boost_headers INTERFACE IMPORTED GLOBAL)
  target_include_directories(batchweave_boost_headers SYSTEM INTERFACE "${BATCHWEAVE_BOOST_INCLUDE_DIR}")
endif()

if(NOT TARGET batchweave_xxhash)
  find_path(BATCHWEAVE_XXHASH_INCLUDE_DIR xxhash.h DOC "Folder that holds xxhash.h")
  if(NOT BATCHWEAVE_XXHASH_INCLUDE_DIR)
    message(FATAL_ERROR "batchweave needs xxhash.h. Debian: apt-get install libxxhash-dev.")
  endif()
  add_library(batchweave_xxhash INTERFACE IMPORTED GLOBAL)
  target_include_directories(batchweave_xxhash SYSTEM INTERFACE "${BATCHWEAVE_XXHASH_INCLUDE_DIR}")
endif()

set(THREADS_PREFER_PTHREAD_FLAG ON)
if(CMAKE_FIND_PACKAGE_NAME)  # called from find_package(batchweave)
  include(CMakeFindDependencyMacro)
  find_dependency(OpenSSL 1.1.1)
  find_dependency(Threads)
  find_dependency(simdjson)
  find_dependency(pugixml)
else()
  find_package(OpenSSL 1.1.1 REQUIRED)
  find_package(Threads REQUIRED)
  find_package(simdjson REQUIRED)
  find_package(pugixml REQUIRED)
endif()
# Found in the scope of a sub-project, used in that of the parent.
foreach(_batchweave_target OpenSSL::SSL OpenSSL::Crypto Threads::Threads simdjson::simdjson pugixml::pugixml)
  get_target_property(_batchweave_imported ${_batchweave_target} IMPORTED)
  get_target_property(_batchweave_alias ${_batchweave_target} ALIASED_TARGET)
  get_target_property(_batchweave_global ${_batchweave_target} IMPORTED_GLOBAL)
  if(_batchweave_imported AND NOT _batchweave_global AND NOT _batchweave_alias)
    set_target_properties(${_batchweave_target} PROPERTIES IMPORTED_GLOBAL TRUE)
  endif()
endforeach()
