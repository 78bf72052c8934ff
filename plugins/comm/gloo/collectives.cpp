// The collectives that c10d's Gloo supports.
#include <ATen/ops/from_blob.h>

#include <cstring>

#include "backend.h"

namespace gannet_gloo {
namespace {

using gannet::sdk::Failure;

// Reductions need the element type. Gloo supports all of the contract's types except int16.
at::ScalarType reducible_type(uint32_t dtype) {
  switch (dtype) {
    case GANNET_FLOAT32:
      return at::kFloat;
    case GANNET_FLOAT64:
      return at::kDouble;
    case GANNET_FLOAT16:
      return at::kHalf;
    case GANNET_BFLOAT16:
      return at::kBFloat16;
    case GANNET_INT8:
      return at::kChar;
    case GANNET_UINT8:
      return at::kByte;
    case GANNET_INT32:
      return at::kInt;
    case GANNET_INT64:
      return at::kLong;
    case GANNET_BOOL:
      return at::kByte;  // zeros and ones, see reduction()
    case GANNET_INT16:
      throw Failure(GANNET_UNSUPPORTED, "Gloo reduces no int16: widen it to int32, or use another comm plugin");
    default:
      throw Failure(GANNET_INVALID_ARGUMENT, "dtype " + std::to_string(dtype) + " is not one of gannet_dtype");
  }
}

c10d::ReduceOp reduction(uint32_t op, uint32_t dtype) {
  switch (op) {
    case GANNET_SUM:
    case GANNET_AVERAGE:
    case GANNET_PREMULTIPLIED_SUM:
      return dtype == GANNET_BOOL ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;  // true + true is true
    case GANNET_MAX:
      return c10d::ReduceOp::MAX;
    default:
      return c10d::ReduceOp::MIN;
  }
}

at::Tensor wrap(const void* pointer, uint64_t count, at::ScalarType type) {
  return at::from_blob(const_cast<void*>(pointer), {static_cast<int64_t>(count)}, at::TensorOptions().dtype(type));
}

LaunchedOperation launch_sum(Backend& backend, const Collective& c) {
  const auto type = reducible_type(c.dtype);
  c10d::AllreduceOptions options;
  options.reduceOp = reduction(c.reduce_op, c.dtype);
  if (c.send != c.recv) std::memcpy(c.recv, c.send, c.bytes());
  gannet::sdk::scale(c.recv, c.count, c.dtype, c.first_factor());
  std::vector<at::Tensor> tensors{wrap(c.recv, c.count, type)};
  LaunchedOperation launched{backend.allreduce(tensors, options)};
  if (c.final_factor() != 1.0) launched.then = [c] { gannet::sdk::scale(c.recv, c.count, c.dtype, c.final_factor()); };
  return launched;
}

// Sends and adds 16-bit elements as floats, and rounds them once.
LaunchedOperation launch_wide_sum(Backend& backend, const Collective& c) {
  auto wide = std::make_shared<std::vector<float>>(c.count);
  gannet::sdk::widen(wide->data(), c.send, c.count, c.dtype);
  gannet::sdk::scale(wide->data(), c.count, GANNET_FLOAT32, c.first_factor());
  c10d::AllreduceOptions options;
  options.reduceOp = reduction(c.reduce_op, GANNET_FLOAT32);
  std::vector<at::Tensor> tensors{wrap(wide->data(), c.count, at::kFloat)};
  LaunchedOperation launched{backend.allreduce(tensors, options)};
  launched.then = [c, wide] {
    gannet::sdk::scale(wide->data(), c.count, GANNET_FLOAT32, c.final_factor());
    gannet::sdk::narrow(c.recv, wide->data(), c.count, c.dtype);
  };
  return launched;
}

}  // namespace

LaunchedOperation launch(Backend& backend, const Collective& c) {
  const uint64_t size = c.size, bytes = c.bytes();
  // Operations that only move data treat it as bytes, so they support every type.
  switch (c.op) {
    case GANNET_ALL_REDUCE:
      return c.sums_in_float() ? launch_wide_sum(backend, c) : launch_sum(backend, c);
    case GANNET_BROADCAST: {
      c10d::BroadcastOptions options;
      options.rootRank = c.peer;
      std::vector<at::Tensor> tensors{wrap(c.recv, bytes, at::kByte)};
      return {backend.broadcast(tensors, options)};
    }
    case GANNET_ALL_GATHER: {
      auto output = wrap(c.recv, bytes * size, at::kByte);
      auto input = wrap(c.send, bytes, at::kByte);
      return {backend._allgather_base(output, input)};
    }
    case GANNET_ALL_TO_ALL: {
      auto output = wrap(c.recv, c.recv_offset(c.size) * c.element_bytes(), at::kByte);
      auto input = wrap(c.send, c.send_offset(c.size) * c.element_bytes(), at::kByte);
      std::vector<int64_t> out_bytes, in_bytes;  // empty if the parts are equal
      for (uint32_t i = 0; c.send_counts && i < c.size; ++i) {
        out_bytes.push_back(static_cast<int64_t>(c.recv_counts[i] * c.element_bytes()));
        in_bytes.push_back(static_cast<int64_t>(c.send_counts[i] * c.element_bytes()));
      }
      return {backend.alltoall_base(output, input, out_bytes, in_bytes)};
    }
    default:
      return {backend.barrier()};
  }
}

}  // namespace gannet_gloo
