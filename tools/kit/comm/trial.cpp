#include "kit/comm/trial.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/format.h"
#include "kit/check.h"
#include "kit/comm/peer.h"
#include "kit/numbers.h"
#include "kit/place.h"

namespace gannet::kit {
namespace {

constexpr unsigned char kUnwritten = 0x5a;  // contents of receive buffers before the collective

const char* name_of_op(uint32_t op) {
  constexpr const char* kNames[] = {"",           "all_reduce", "broadcast", "all_gather", "reduce_scatter",
                                    "all_to_all", "barrier",    "send",      "recv"};
  return kNames[op];
}
const char* name_of_reduction(uint32_t op) {
  constexpr const char* kNames[] = {"", "SUM", "MAX", "MIN", "AVERAGE", "PREMULTIPLIED_SUM"};
  return kNames[op];
}

bool reduces(const RequestedCollective& wanted) { return wanted.op == GANNET_ALL_REDUCE || wanted.op == GANNET_REDUCE_SCATTER; }

// A rank's factor for its elements: exact in every type, and another one in place.
double factor_of(uint32_t rank, const RequestedCollective& wanted) { return (wanted.in_place ? 1 : 0.5) * (rank + 1); }

// Sizes of uneven parts, some of them empty: for each rank in a gather or a scatter, and for each
// pair of ranks in an exchange.
uint64_t part_of(uint32_t rank, uint64_t seed) { return (rank + seed) % 3 * 1001; }
uint64_t part_between(uint32_t from, uint32_t to) { return from == to ? 2 : (3 * from + 5 * to) % 7 * 11; }

// The relative error of an average, which is rounded twice in the type: as 1 / size, and as the
// product. All other results are exact.
double tolerance_of(const RequestedCollective& wanted) {
  if (wanted.reduce_op != GANNET_AVERAGE || !reduces(wanted)) return 0;
  switch (wanted.dtype) {
    case GANNET_FLOAT64:
      return 0x1p-51;
    case GANNET_FLOAT32:
      return 0x1p-22;
    case GANNET_FLOAT16:
      return 0x1p-9;
    default:
      return 0x1p-6;
  }
}

uint64_t total(const std::vector<uint64_t>& counts) { return std::accumulate(counts.begin(), counts.end(), uint64_t{0}); }

}  // namespace

// Whole numbers from 0 to 10: every sum over 4 ranks is exact in every type. Booleans are 0 and 1.
double CollectiveTrial::value(uint32_t of_rank, uint64_t element) const {
  const uint64_t number = (element * 3 + of_rank * 5 + wanted_.seed) % 11;
  return static_cast<double>(wanted_.dtype == GANNET_BOOL ? number % 2 : number);
}

double CollectiveTrial::reduced(uint64_t element) const {
  const bool weighs = wanted_.reduce_op == GANNET_PREMULTIPLIED_SUM;
  double result = value(0, element) * (weighs ? factor_of(0, wanted_) : 1);
  for (uint32_t r = 1; r < size_; ++r) {
    const double next = value(r, element) * (weighs ? factor_of(r, wanted_) : 1);
    if (wanted_.reduce_op == GANNET_MAX || (wanted_.dtype == GANNET_BOOL && wanted_.reduce_op == GANNET_SUM))
      result = std::max(result, next);
    else
      result = wanted_.reduce_op == GANNET_MIN ? std::min(result, next) : result + next;
  }
  return wanted_.reduce_op == GANNET_AVERAGE ? result / size_ : result;
}

void CollectiveTrial::fill(void* buffer, uint32_t of_rank, uint64_t begin, uint64_t count) const {
  for (uint64_t i = 0; i < count; ++i) put(buffer, i, wanted_.dtype, value(of_rank, begin + i));
}

void CollectiveTrial::add_expected(uint32_t of_rank, uint64_t begin, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) expected_.push_back(value(of_rank, begin + i));
}

CollectiveTrial::CollectiveTrial(uint32_t rank, uint32_t size, const RequestedCollective& wanted)
    : wanted_(wanted), rank_(rank), size_(size) {
  name_ = name_of_op(wanted.op);
  if (reduces(wanted)) name_ += formatted(" {}", name_of_reduction(wanted.reduce_op));
  if (wanted.op != GANNET_BARRIER) {
    name_ += formatted(" of {}", name_of(wanted.dtype));
    name_ += wanted.uneven ? ", uneven parts" : formatted(", count {}", wanted.count);
  }
  if (wanted.op == GANNET_BROADCAST) name_ += formatted(", root {}", wanted.peer);
  if (wanted.op == GANNET_SEND) name_ += formatted(", to rank {}", wanted.peer);
  if (wanted.op == GANNET_RECV) name_ += formatted(", from rank {}", wanted.peer);
  if (wanted.in_place) name_ += ", in place";
  if (wanted.sum_dtype != GANNET_DTYPE_NONE) name_ += formatted(", sum_dtype {}", name_of(wanted.sum_dtype));

  const uint64_t count = wanted.uneven ? part_of(rank, wanted.seed) : wanted.count;
  std::vector<uint64_t> parts(size, wanted.count);  // per rank, for operations that have parts
  for (uint32_t r = 0; wanted.uneven && r < size; ++r) parts[r] = part_of(r, wanted.seed);
  const uint64_t before = std::accumulate(parts.begin(), parts.begin() + rank, uint64_t{0});
  uint64_t received = count;
  sent_ = count;
  switch (wanted.op) {
    case GANNET_ALL_REDUCE:
      for (uint64_t i = 0; i < count; ++i) expected_.push_back(reduced(i));
      break;
    case GANNET_BROADCAST:
      sent_ = 0;
      add_expected(wanted.peer, 0, count);
      break;
    case GANNET_ALL_GATHER:
      received = total(parts);
      for (uint32_t r = 0; r < size; ++r) add_expected(r, 0, parts[r]);
      if (wanted.uneven) recv_counts_ = parts;
      break;
    case GANNET_REDUCE_SCATTER:
      sent_ = total(parts);
      for (uint64_t i = 0; i < count; ++i) expected_.push_back(reduced(before + i));
      if (wanted.uneven) send_counts_ = parts;
      break;
    case GANNET_ALL_TO_ALL:
      for (uint32_t r = 0; r < size; ++r) {
        const auto sends = [&](uint32_t to) { return wanted.uneven ? part_between(r, to) : wanted.count; };
        uint64_t begin = 0;  // start of r's part for this rank in r's send buffer
        for (uint32_t to = 0; to < rank; ++to) begin += sends(to);
        add_expected(r, begin, sends(rank));
        if (!wanted.uneven) continue;
        recv_counts_.push_back(sends(rank));
        send_counts_.push_back(part_between(rank, r));
      }
      sent_ = wanted.uneven ? total(send_counts_) : wanted.count * size;
      received = expected_.size();
      break;
    case GANNET_SEND:
      received = 0;
      break;
    case GANNET_RECV:
      sent_ = 0;
      add_expected(wanted.peer, 0, count);
      break;
    case GANNET_BARRIER:
      sent_ = received = 0;
  }
  const size_t element = wanted.op == GANNET_BARRIER ? 1 : bytes_of(wanted.dtype);
  send_ = Buffer(sent_ * element, "the buffer that is sent");
  recv_ = Buffer(received * element, "the buffer that is received into");
  std::memset(recv_.data(), kUnwritten, recv_.bytes());
  fill(send_.data(), rank, 0, sent_);
  if (wanted.op == GANNET_BROADCAST && rank == wanted.peer) fill(recv_.data(), rank, 0, count);
  args_.struct_size = sizeof(args_);
  args_.op = wanted.op;
  args_.dtype = wanted.op == GANNET_BARRIER ? GANNET_DTYPE_NONE : wanted.dtype;
  args_.reduce_op = wanted.reduce_op;
  args_.peer = wanted.peer;
  args_.sum_dtype = wanted.sum_dtype;
  args_.count = wanted.op == GANNET_ALL_TO_ALL && wanted.uneven ? 0 : count;
  args_.factor = factor_of(rank, wanted);
  args_.send = wanted.op == GANNET_BROADCAST || wanted.op == GANNET_RECV ? nullptr : send_.data();
  args_.recv = wanted.op == GANNET_SEND ? nullptr : recv_.data();
  args_.send_counts = send_counts_.empty() ? nullptr : send_counts_.data();
  args_.recv_counts = recv_counts_.empty() ? nullptr : recv_counts_.data();
  result_ = recv_.data();
  if (!wanted.in_place) return;
  const auto part = [&](const Buffer& buffer) { return static_cast<char*>(buffer.data()) + before * element; };
  if (wanted.op == GANNET_REDUCE_SCATTER) {
    args_.recv = result_ = part(send_);
  } else {
    args_.send = wanted.op == GANNET_ALL_GATHER ? part(recv_) : recv_.data();
    fill(const_cast<void*>(args_.send), rank, 0, count);
  }
}

void CollectiveTrial::check_sent() const {
  if (wanted_.in_place) return;
  for (uint64_t i = 0; i < sent_; ++i)
    if (get(send_.data(), i, wanted_.dtype) != value(rank_, i))
      throw CheckFailure(
          formatted("it wrote {} to element {} of the buffer that is sent", get(send_.data(), i, wanted_.dtype), i),
          text_of(place()), "`send` is never written", "reduce into recv, or into memory of your own");
}

void CollectiveTrial::check() const {
  set_detail(name_);
  const double tolerance = tolerance_of(wanted_);
  for (uint64_t i = 0; i < expected_.size(); ++i) {
    const double found = get(result_, i, wanted_.dtype), expected = expected_[i];
    if (found == expected || std::fabs(found - expected) <= tolerance * std::fabs(expected)) continue;
    throw CheckFailure(formatted("element {} of {} is {}, not {}", i, expected_.size(), found, expected), text_of(place()));
  }
  check_sent();
  std::string where;
  for (const Buffer* buffer : {&send_, &recv_})
    if (!buffer->is_intact(&where))
      throw CheckFailure(
          formatted("it wrote {} of the buffer {}", where, buffer == &send_ ? "that is sent" : "that is received into"),
          text_of(place()), "no access outside of a buffer", "count elements of the dtype, and only yours");
}

bool run(PeerGroup& group, const RequestedCollective& wanted) {
  const CollectiveTrial trial(group.rank(), group.size(), wanted);
  PeerWork work;
  CallOutcome outcome = group.try_start(trial.args(), trial.name(), work);
  if (outcome.ok()) {
    outcome = work.wait(group.peer().timeout_ms());
    require_explained("work_wait", outcome);
  }
  if (outcome.status == GANNET_UNSUPPORTED) return false;
  require_ok("collective", outcome);
  trial.check();
  return true;
}

}  // namespace gannet::kit
