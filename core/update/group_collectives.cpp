#include "update/group_collectives.h"

#include <ATen/ops/from_blob.h>
#include <gannet/error.h>

#include "base/format.h"
#include "interfaces/call.h"
#include "tensor/dtype.h"

namespace gannet {

void GroupCollectives::run(const gannet_host_collective& args) {
  const plugin::PluginCallMark* const inside = plugin::PluginCallMark::current();
  try {
    move(args);
  } catch (const Error& error) {
    // Adds the plugin and the call to the error. Network errors and errors of another rank are not
    // the plugin's fault. If a collective times out although all ranks are alive, not all of them
    // requested it.
    const bool is_misuse = error.code() == ErrorCode::kArgument || error.code() == ErrorCode::kTimeout;
    if (inside && inside->plugin() && is_misuse)
      failed_ = std::make_exception_ptr(plugin::fault(
          *inside->plugin(), formatted("{}: {}{}", interfaces::who(*inside->plugin(), inside->place()), error.message(),
                                       error.code() == ErrorCode::kTimeout
                                           ? "; the plugin asked for this collective: do all ranks call it, in the same order?"
                                           : "")));
    else
      failed_ = std::current_exception();
    throw;
  } catch (...) {
    failed_ = std::current_exception();
    throw;
  }
}

void GroupCollectives::move(const gannet_host_collective& args) {
  if (args.dtype == GANNET_DTYPE_NONE || args.dtype > GANNET_BOOL)
    throw Error(ErrorCode::kArgument, formatted("a collective was asked for of elements of an unknown dtype, {}", args.dtype));
  if (context_.updates_on_host() && context_.comm->size() > 1)
    throw Error(ErrorCode::kUnsupported,
                "a collective was asked for of host memory, where the optimizer is offloaded from a device with its own: the "
                "Comm of the ranks moves the device's memory");
  DeviceComm& comm = *context_.comm;
  const auto ranks = static_cast<int64_t>(comm.size()), count = static_cast<int64_t>(args.count);
  const at::Device device = context_.updates_on_host() ? at::Device(at::kCPU) : context_.device;
  const auto options = at::TensorOptions().dtype(to_scalar_type(static_cast<gannet_dtype>(args.dtype))).device(device);
  const auto view = [&](const void* memory, int64_t numel) {
    if (!memory && numel > 0) throw Error(ErrorCode::kArgument, "a collective was asked for with a null buffer");
    return at::from_blob(const_cast<void*>(memory), {numel}, options);
  };
  const auto op = static_cast<gannet_reduce_op>(args.reduce_op);
  const bool reduces = args.operation == GANNET_HOST_ALL_REDUCE || args.operation == GANNET_HOST_REDUCE_SCATTER;
  if (reduces && (op < GANNET_SUM || op > GANNET_AVERAGE))
    throw Error(ErrorCode::kArgument, formatted("a collective was asked for with an unknown operation, {}", args.reduce_op));
  if (args.root >= comm.size())
    throw Error(ErrorCode::kArgument,
                formatted("a collective was asked for with root {}, and there are {} ranks", args.root, ranks));
  switch (args.operation) {
    case GANNET_HOST_ALL_REDUCE: {
      const at::Tensor into = view(args.recv, count);
      if (args.send != args.recv) into.copy_(view(args.send, count));
      if (ranks > 1) comm.all_reduce(into, op).block();
      return;
    }
    case GANNET_HOST_BROADCAST:
      if (ranks > 1) comm.broadcast(view(args.recv, count), args.root).block();
      return;
    case GANNET_HOST_ALL_GATHER:
      if (ranks > 1)
        comm.all_gather(view(args.send, count), view(args.recv, ranks * count)).block();
      else
        view(args.recv, count).copy_(view(args.send, count));
      return;
    case GANNET_HOST_REDUCE_SCATTER:
      if (ranks > 1)
        comm.reduce_scatter(view(args.send, ranks * count), view(args.recv, count), op).block();
      else
        view(args.recv, count).copy_(view(args.send, count));
      return;
    case GANNET_HOST_ALL_TO_ALL:
      if (ranks > 1)
        comm.all_to_all(view(args.send, ranks * count), view(args.recv, ranks * count)).block();
      else
        view(args.recv, count).copy_(view(args.send, count));
      return;
    default:
      throw Error(ErrorCode::kArgument,
                  formatted("a collective was asked for that this Gannet does not know, {}", args.operation));
  }
}

}  // namespace gannet
