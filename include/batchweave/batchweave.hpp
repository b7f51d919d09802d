// Everything a user of BatchWeave includes.
#pragma once

#include <batchweave/as_result.hpp>
#include <batchweave/checkpoint.hpp>
#include <batchweave/commit/cooperative.hpp>
#include <batchweave/commit/dac.hpp>
#include <batchweave/commit/eager.hpp>
#include <batchweave/commit/every.hpp>
#include <batchweave/commit/fixed_interval.hpp>
#include <batchweave/consumer.hpp>
#include <batchweave/cursor.hpp>
#include <batchweave/global_batch.hpp>
#include <batchweave/producer.hpp>
#include <batchweave/reclaim.hpp>
#include <batchweave/retire.hpp>
#include <batchweave/seal.hpp>
#include <batchweave/slice.hpp>
#include <batchweave/store/any_store.hpp>
#include <batchweave/store/file.hpp>
#include <batchweave/store/memory.hpp>
#include <batchweave/store/open.hpp>
#include <batchweave/store/s3.hpp>
#include <batchweave/stream.hpp>
