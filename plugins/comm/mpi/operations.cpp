#include "operations.h"

#include <algorithm>
#include <cstring>
#include <gannet/sdk_reduce.hpp>
#include <limits>

namespace gannet_mpi {

using gannet::sdk::bytes_of;
using gannet::sdk::Collective;
using gannet::sdk::Failure;
using gannet::sdk::is_16_bit_float;

namespace {

// Messages of the program, and parts of an exchange.
enum Tag { kMessage = 1, kPart = 2 };

// MPI counts elements in an int: more are moved by several operations.
constexpr uint64_t kMostElements = uint64_t{1} << 30;

// Reductions of 16-bit floats, which MPI has no types for: each partial sum is rounded.
template <uint32_t dtype, gannet_reduce_op op>
void combine_16_bit(void* other, void* into, int* count, MPI_Datatype*) {
  gannet::sdk::combine(into, other, static_cast<uint64_t>(*count), dtype, op);
}

struct HalfType {
  MPI_Datatype type;
  MPI_Op sum, max, min;
};
template <uint32_t dtype>
HalfType make_half_type() {
  HalfType made{};
  require(MPI_Type_contiguous(2, MPI_BYTE, &made.type), "MPI_Type_contiguous");
  require(MPI_Type_commit(&made.type), "MPI_Type_commit");
  require(MPI_Op_create(&combine_16_bit<dtype, GANNET_SUM>, /*commute=*/1, &made.sum), "MPI_Op_create");
  require(MPI_Op_create(&combine_16_bit<dtype, GANNET_MAX>, /*commute=*/1, &made.max), "MPI_Op_create");
  require(MPI_Op_create(&combine_16_bit<dtype, GANNET_MIN>, /*commute=*/1, &made.min), "MPI_Op_create");
  return made;
}
const HalfType& half_type(uint32_t dtype) {
  static const HalfType fp16 = make_half_type<GANNET_FLOAT16>();
  static const HalfType bf16 = make_half_type<GANNET_BFLOAT16>();
  return dtype == GANNET_FLOAT16 ? fp16 : bf16;
}

MPI_Datatype type_of(uint32_t dtype) {
  switch (dtype) {
    case GANNET_FLOAT64:
      return MPI_DOUBLE;
    case GANNET_FLOAT32:
      return MPI_FLOAT;
    case GANNET_INT64:
      return MPI_INT64_T;
    case GANNET_INT32:
      return MPI_INT32_T;
    case GANNET_INT16:
      return MPI_INT16_T;
    case GANNET_INT8:
      return MPI_INT8_T;
    case GANNET_FLOAT16:
    case GANNET_BFLOAT16:
      return half_type(dtype).type;
    default:
      return MPI_UINT8_T;  // GANNET_UINT8, GANNET_BOOL
  }
}

MPI_Op op_of(const Collective& c, uint32_t dtype) {
  const bool is_max = c.reduce_op == GANNET_MAX || (dtype == GANNET_BOOL && c.reduce_op == GANNET_SUM);
  if (is_16_bit_float(dtype)) {
    const HalfType& half = half_type(dtype);
    return is_max ? half.max : c.reduce_op == GANNET_MIN ? half.min : half.sum;
  }
  return is_max ? MPI_MAX : c.reduce_op == GANNET_MIN ? MPI_MIN : MPI_SUM;
}

// [0, count) in parts that MPI can count.
template <class Body>
void in_chunks(uint64_t count, Body&& body) {
  for (uint64_t begin = 0; begin < count; begin += kMostElements)
    body(begin, static_cast<int>(std::min(kMostElements, count - begin)));
}

void send_part(Requests& requests, const void* from, uint64_t count, uint32_t dtype, uint32_t to, Tag tag, MPI_Comm comm) {
  in_chunks(count, [&](uint64_t begin, int part) {
    require(MPI_Isend(static_cast<const char*>(from) + begin * bytes_of(dtype), part, type_of(dtype), static_cast<int>(to), tag,
                      comm, &requests.emplace_back()),
            "MPI_Isend");
  });
}
void receive_part(Requests& requests, void* into, uint64_t count, uint32_t dtype, uint32_t from, Tag tag, MPI_Comm comm) {
  in_chunks(count, [&](uint64_t begin, int part) {
    require(MPI_Irecv(static_cast<char*>(into) + begin * bytes_of(dtype), part, type_of(dtype), static_cast<int>(from), tag, comm,
                      &requests.emplace_back()),
            "MPI_Irecv");
  });
}
void all_reduce(Requests& requests, void* data, uint64_t count, const Collective& c, uint32_t dtype, MPI_Comm comm) {
  in_chunks(count, [&](uint64_t begin, int part) {
    require(MPI_Iallreduce(MPI_IN_PLACE, static_cast<char*>(data) + begin * bytes_of(dtype), part, type_of(dtype),
                           op_of(c, dtype), comm, &requests.emplace_back()),
            "MPI_Iallreduce");
  });
}

// The operands of a reduction: this rank's elements, scaled by its factor, and in fp32 if the sum
// is rounded only once. Empty if the reduction is in place.
struct Addends {
  Addends(const Collective& c, uint64_t count) : dtype(c.sums_in_float() ? static_cast<uint32_t>(GANNET_FLOAT32) : c.dtype) {
    values.resize(count * bytes_of(dtype));
    if (c.sums_in_float())
      gannet::sdk::widen(reinterpret_cast<float*>(values.data()), c.send, count, c.dtype);
    else if (count > 0)
      std::memcpy(values.data(), c.send, values.size());
    gannet::sdk::scale(values.data(), count, dtype, c.first_factor());
  }
  // The finished sum of `count` elements from `begin`, in the collective's type.
  void give(const Collective& c, uint64_t begin, uint64_t count) {
    char* const from = values.data() + begin * bytes_of(dtype);
    gannet::sdk::scale(from, count, dtype, c.final_factor());
    if (c.sums_in_float())
      gannet::sdk::narrow(c.recv, reinterpret_cast<const float*>(from), count, c.dtype);
    else if (count > 0)
      std::memcpy(c.recv, from, count * bytes_of(dtype));
  }
  uint32_t dtype;
  std::vector<char> values;
};

Operation all_reduce_of(const Collective& c, MPI_Comm comm) {
  if (c.sums_in_float() || c.first_factor() != 1.0) {
    const auto addends = std::make_shared<Addends>(c, c.count);
    return {[=] {
              Requests requests;
              all_reduce(requests, addends->values.data(), c.count, c, addends->dtype, comm);
              return requests;
            },
            [=] { addends->give(c, 0, c.count); }};
  }
  return {[=] {
            if (c.send != c.recv && c.count > 0) std::memcpy(c.recv, c.send, c.bytes());
            Requests requests;
            all_reduce(requests, c.recv, c.count, c, c.dtype, comm);
            return requests;
          },
          [=] { gannet::sdk::scale(c.recv, c.count, c.dtype, c.final_factor()); }};
}

// Each part is reduced to its own rank: parts of any size and number of elements.
Operation reduce_scatter_of(const Collective& c, MPI_Comm comm) {
  const uint64_t all = c.send_offset(c.size);
  const auto addends = std::make_shared<Addends>(c, all);
  return {[=] {
            Requests requests;
            for (uint32_t rank = 0; rank < c.size; ++rank)
              in_chunks(c.send_count(rank), [&](uint64_t begin, int part) {
                char* const at = addends->values.data() + (c.send_offset(rank) + begin) * bytes_of(addends->dtype);
                const bool is_mine = rank == c.rank;
                require(MPI_Ireduce(is_mine ? MPI_IN_PLACE : at, is_mine ? at : nullptr, part, type_of(addends->dtype),
                                    op_of(c, addends->dtype), static_cast<int>(rank), comm, &requests.emplace_back()),
                        "MPI_Ireduce");
              });
            return requests;
          },
          [=] { addends->give(c, c.send_offset(c.rank), c.count); }};
}

Operation broadcast_of(const Collective& c, MPI_Comm comm) {
  return {[=] {
            Requests requests;
            in_chunks(c.count, [&](uint64_t begin, int part) {
              require(MPI_Ibcast(static_cast<char*>(c.recv) + begin * c.element_bytes(), part, type_of(c.dtype),
                                 static_cast<int>(c.peer), comm, &requests.emplace_back()),
                      "MPI_Ibcast");
            });
            return requests;
          },
          {}};
}

// Each rank's part is a broadcast of its own: parts of any size, directly into place.
Operation all_gather_of(const Collective& c, MPI_Comm comm) {
  return {[=] {
            if (c.count > 0 && c.send != c.recv_part(c.rank)) std::memmove(c.recv_part(c.rank), c.send, c.bytes());
            Requests requests;
            const uint64_t all = c.recv_offset(c.size);
            if (!c.recv_counts && all <= kMostElements) {
              require(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, c.recv, static_cast<int>(c.count), type_of(c.dtype),
                                     comm, &requests.emplace_back()),
                      "MPI_Iallgather");
              return requests;
            }
            for (uint32_t rank = 0; rank < c.size; ++rank)
              in_chunks(c.recv_count(rank), [&](uint64_t begin, int part) {
                require(MPI_Ibcast(c.recv_part(rank) + begin * c.element_bytes(), part, type_of(c.dtype), static_cast<int>(rank),
                                   comm, &requests.emplace_back()),
                        "MPI_Ibcast");
              });
            return requests;
          },
          {}};
}

Operation all_to_all_of(const Collective& c, MPI_Comm comm) {
  return {[=] {
            Requests requests;
            for (uint32_t step = 1; step < c.size; ++step) {
              const uint32_t from = (c.rank + c.size - step) % c.size;
              receive_part(requests, c.recv_part(from), c.recv_count(from), c.dtype, from, kPart, comm);
            }
            for (uint32_t step = 1; step < c.size; ++step) {
              const uint32_t to = (c.rank + step) % c.size;
              send_part(requests, c.send_part(to), c.send_count(to), c.dtype, to, kPart, comm);
            }
            if (c.send_count(c.rank) > 0)
              std::memmove(c.recv_part(c.rank), c.send_part(c.rank), c.send_count(c.rank) * c.element_bytes());
            return requests;
          },
          {}};
}

Operation make_operation(const Collective& c, MPI_Comm comm) {
  switch (c.op) {
    case GANNET_ALL_REDUCE:
      return all_reduce_of(c, comm);
    case GANNET_BROADCAST:
      return broadcast_of(c, comm);
    case GANNET_ALL_GATHER:
      return all_gather_of(c, comm);
    case GANNET_REDUCE_SCATTER:
      return reduce_scatter_of(c, comm);
    case GANNET_ALL_TO_ALL:
      return all_to_all_of(c, comm);
    case GANNET_SEND:
      return {[=] {
                Requests requests;
                send_part(requests, c.send, c.count, c.dtype, c.peer, kMessage, comm);
                return requests;
              },
              {}};
    case GANNET_RECV:
      return {[=] {
                Requests requests;
                receive_part(requests, c.recv, c.count, c.dtype, c.peer, kMessage, comm);
                return requests;
              },
              {}};
    default:
      return {[=] {
                Requests requests;
                require(MPI_Ibarrier(comm, &requests.emplace_back()), "MPI_Ibarrier");
                return requests;
              },
              {}};
  }
}

}  // namespace

Operation operation_of(const Collective& c, MPI_Comm comm) {
  if (!c.send_counts && !c.recv_counts) return make_operation(c, comm);
  // The caller's lists are there only until the call returns.
  const auto lists = std::make_shared<std::vector<uint64_t>>(2 * c.size);
  Collective own = c;
  if (c.send_counts) own.send_counts = std::copy(c.send_counts, c.send_counts + c.size, lists->data()) - c.size;
  if (c.recv_counts) own.recv_counts = std::copy(c.recv_counts, c.recv_counts + c.size, lists->data() + c.size) - c.size;
  Operation made = make_operation(own, comm);
  return {[lists, issue = std::move(made.issue)] { return issue(); },
          [lists, then = std::move(made.then)] {
            if (then) then();
          }};
}

}  // namespace gannet_mpi
