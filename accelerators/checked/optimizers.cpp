#include "optimizers.h"

#include <cstring>
#include <gannet/sdk.hpp>
#include <string>

#include "checker.h"
#include "memory.h"
#include "streams.h"

namespace gannet::accelerators::checked {
namespace {

// The piece's arrays, translated, and what the launch does to them.
class Piece {
 public:
  Piece(const gannet_update_args& given, Pass pass) {
    std::memcpy(&args, &given, std::min<size_t>(given.struct_size, sizeof(args)));
    name(args);
    args.param = take(args.param, sizeof_type(args.param_dtype), pass == Pass::kUpdate);
    args.grad = take(args.grad, sizeof_type(args.grad_dtype), false);
    args.out = take(args.out, sizeof_type(args.out_dtype), true);
    args.second_grad = take(args.second_grad, sizeof_type(args.param_dtype), false);
    args.workspace = Memory::get().alias(args.workspace);
    args.device_numbers = Memory::get().alias(args.device_numbers);
    for (uint64_t i = 0; i < args.state_count; ++i) {
      states_.push_back(take_block(args.states[i], pass == Pass::kUpdate));
    }
    if (args.states) args.states = states_.data();
    for (uint64_t i = 0; args.squares && i < args.segment_count * args.state_count; ++i)
      squares_.push_back(take_block(args.squares[i], pass == Pass::kUpdate));
    if (args.squares) args.squares = squares_.data();
  }

  gannet_update_args args{};
  std::vector<Access> accesses;

 private:
  static uint64_t sizeof_type(uint32_t dtype) { return dtype == GANNET_DTYPE_NONE ? 0 : sdk::bytes_of(dtype); }

  template <class T>
  T* take(T* array, uint64_t element_bytes, bool writes) {
    if (array && Memory::get().is_device(array)) {
      const auto begin = reinterpret_cast<uint64_t>(array);
      accesses.push_back({begin, begin + args.numel * element_bytes, writes});
    }
    return Memory::get().alias(array);
  }
  // Of a state only the description knows the type: its first byte of each element stands for all, so that neighbouring pieces of
  // one allocation are not mixed up.
  void* take_block(void* array, bool writes) {
    if (array && Memory::get().is_device(array)) {
      const auto begin = reinterpret_cast<uint64_t>(array);
      accesses.push_back({begin, begin + 1, writes});
    }
    return Memory::get().alias(array);
  }
  static void name(const gannet_update_args& args) {
    if (args.segment_count == 0 || !args.param) return;
    const std::string first = args.segments->name ? args.segments->name : "";
    Memory::get().set_name(args.param, args.segment_count == 1 ? first : first + "' and others of its range, '");
  }

  std::vector<void*> states_, squares_;
};

}  // namespace

int32_t launch_update(const gannet_update_args& args, const char* optimizer, Pass pass, gannet_error* error,
                      const std::function<int32_t(const gannet_update_args&)>& run) {
  return sdk::guarded(error, [&] {
    Piece piece(args, pass);
    Actor& stream = args.stream ? static_cast<Stream*>(args.stream)->actor : current_stream(args.device).actor;
    ++Checker::get().counters().updates;
    Checker::get().launch(stream, std::string(pass == Pass::kSums ? "sums of " : "update of ") + optimizer, piece.accesses);
    piece.args.stream = nullptr;
    const int32_t status = run(piece.args);
    // The text is the optimizer's already.
    if (status != GANNET_OK)
      throw sdk::Failure(static_cast<gannet_status>(status), error && error->message ? error->message : "");
    if (pass == Pass::kSums) Checker::get().host_waits_for(stream);  // sums are numbers of the host
  });
}

}  // namespace gannet::accelerators::checked
