// Version and the one namespace alias that every layer above uses.
#pragma once

#define BATCHWEAVE_VERSION_MAJOR 0
#define BATCHWEAVE_VERSION_MINOR 1
#define BATCHWEAVE_VERSION_PATCH 0
#define BATCHWEAVE_VERSION "0.1.0"

namespace boost::asio {}

namespace batchweave {
namespace asio = boost::asio;
}
