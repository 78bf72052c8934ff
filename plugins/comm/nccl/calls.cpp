#include "calls.h"

#include <cstring>
#include <gannet/sdk_float16.hpp>

namespace gannet_nccl {
namespace {

using gannet::sdk::Collective;
using gannet::sdk::Failure;

// The library's type for a reduction; -1: it has none.
int type_of(uint32_t dtype) {
  switch (dtype) {
    case GANNET_FLOAT32:
      return kFloat32;
    case GANNET_FLOAT64:
      return kFloat64;
    case GANNET_FLOAT16:
      return kFloat16;
    case GANNET_BFLOAT16:
      return kBfloat16;
    case GANNET_INT8:
      return kInt8;
    case GANNET_UINT8:
      return kUint8;
    case GANNET_INT32:
      return kInt32;
    case GANNET_INT64:
      return kInt64;
    default:
      return -1;
  }
}

// Writes the factor as a number of the type, which is how the library takes it.
void put_factor(void* place, uint32_t dtype, double factor) {
  const auto put = [&](auto number) { std::memcpy(place, &number, sizeof(number)); };
  if (dtype == GANNET_FLOAT64) put(factor);
  if (dtype == GANNET_FLOAT32) put(static_cast<float>(factor));
  if (dtype == GANNET_FLOAT16) put(gannet::sdk::Float16(static_cast<float>(factor)));
  if (dtype == GANNET_BFLOAT16) put(gannet::sdk::BFloat16(static_cast<float>(factor)));
}

// A reduction's operator. One with a factor is made for the call, and destroyed after it.
class Operator {
 public:
  Operator(const Collective& c, const Communicator::Launch& launch) : launch_(launch) {
    switch (c.reduce_op) {
      case GANNET_MAX:
        op_ = kMax;
        return;
      case GANNET_MIN:
        op_ = kMin;
        return;
      case GANNET_AVERAGE:
        op_ = kAverage;
        return;
      case GANNET_PREMULTIPLIED_SUM:
        break;
      default:
        return;
    }
    if (c.factor == 1.0) return;
    alignas(8) char factor[8] = {};
    put_factor(factor, c.dtype, c.factor);
    launch("ncclRedOpCreatePreMulSum",
           launch->create_premultiplied_sum(&op_, factor, static_cast<DataType>(type_of(c.dtype)), kScalarOnHost, launch.comm()));
    is_own_ = true;
  }
  ~Operator() {
    if (is_own_) launch_->destroy_op(op_, launch_.comm());
  }
  Operator(const Operator&) = delete;
  int get() const { return op_; }

 private:
  const Communicator::Launch& launch_;
  int op_ = kSum;
  bool is_own_ = false;
};

}  // namespace

void require_supported(const Collective& c, const Library& library) {
  if (!c.reduces()) return;
  const auto refuse = [&](const std::string& what, const std::string& next) {
    throw Failure(GANNET_UNSUPPORTED,
                  "comm plugin 'nccl': " + std::string(gannet::sdk::name_of_collective(c.op)) + " of " + what + ": " + next);
  };
  if (type_of(c.dtype) < 0) refuse("this type", "the library adds int8, uint8, int32, int64 and floating-point numbers");
  if (c.sums_in_float() && c.size > 1)
    refuse("16-bit numbers with fp32 sums", "the library rounds every partial sum; convert to fp32 first");
  if (c.first_factor() != 1.0 && (!library.create_premultiplied_sum || !library.destroy_op))
    refuse("numbers with a factor", "it needs NCCL 2.11 or later, and this is " + library.version_text());
}

// Operations without a sum move bytes, so that they accept all types.
void issue(const Collective& c, const Communicator::Launch& launch, Stream stream, void* token) {
  const Comm comm = launch.comm();
  const uint64_t element = c.element_bytes();
  const auto type = c.reduces() ? static_cast<DataType>(type_of(c.dtype)) : kUint8;
  const auto peer = static_cast<int>(c.peer);
  switch (c.op) {
    case GANNET_ALL_REDUCE: {
      const Operator op(c, launch);
      return launch("ncclAllReduce", launch->all_reduce(c.send, c.recv, c.count, type, op.get(), comm, stream));
    }
    case GANNET_REDUCE_SCATTER: {
      const Operator op(c, launch);
      if (!c.send_counts)
        return launch("ncclReduceScatter", launch->reduce_scatter(c.send, c.recv, c.count, type, op.get(), comm, stream));
      for (uint32_t r = 0; r < c.size; ++r)
        if (c.send_count(r) > 0)
          launch("ncclReduce", launch->reduce(c.send_part(r), r == c.rank ? c.recv : nullptr, c.send_count(r), type, op.get(),
                                              static_cast<int>(r), comm, stream));
      return;
    }
    case GANNET_BROADCAST:
      return launch("ncclBroadcast", launch->broadcast(c.recv, c.recv, c.bytes(), type, peer, comm, stream));
    case GANNET_ALL_GATHER:
      if (!c.recv_counts) return launch("ncclAllGather", launch->all_gather(c.send, c.recv, c.bytes(), type, comm, stream));
      for (uint32_t r = 0; r < c.size; ++r)
        if (c.recv_count(r) > 0)
          launch("ncclBroadcast", launch->broadcast(r == c.rank ? c.send : c.recv_part(r), c.recv_part(r),
                                                    c.recv_count(r) * element, type, static_cast<int>(r), comm, stream));
      return;
    case GANNET_ALL_TO_ALL:
      for (uint32_t r = 0; r < c.size; ++r) {
        if (c.send_count(r) > 0)
          launch("ncclSend", launch->send(c.send_part(r), c.send_count(r) * element, type, static_cast<int>(r), comm, stream));
        if (c.recv_count(r) > 0)
          launch("ncclRecv", launch->recv(c.recv_part(r), c.recv_count(r) * element, type, static_cast<int>(r), comm, stream));
      }
      return;
    case GANNET_SEND:
      if (c.count == 0) return;
      return launch("ncclSend", launch->send(c.send, c.bytes(), type, peer, comm, stream));
    case GANNET_RECV:
      if (c.count == 0) return;
      return launch("ncclRecv", launch->recv(c.recv, c.bytes(), type, peer, comm, stream));
    default:  // a barrier
      if (c.size == 1) return;
      return launch("ncclAllReduce", launch->all_reduce(token, token, 1, kInt32, kSum, comm, stream));
  }
}

}  // namespace gannet_nccl
