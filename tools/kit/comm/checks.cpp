#include "kit/comm/checks.h"

namespace gannet::kit {

std::vector<Check> comm_checks() {
  constexpr const char* kPlain = "what a plain loop over the ranks gives, in each rank's buffer and nowhere else";
  return {
      {"worlds", "create serves a world, or refuses its size with GANNET_UNSUPPORTED and a sentence, on all ranks alike",
       "judge by rendezvous->world_size", 60, serve_worlds},
      {"moves", kPlain, "mind count 0, odd counts, send == recv, and parts inside the other buffer", 120, move_data},
      {"reduces", kPlain, "compare with gannet::sdk::reduce_parts; refuse a dtype with GANNET_UNSUPPORTED and a sentence", 120,
       reduce_data},
      {"uneven-parts", kPlain, "parts follow one another, and may be empty", 60, move_uneven_parts},
      {"sum-dtype", "16-bit sums are rounded as sum_dtype() and args->sum_dtype say",
       "add in float and round once, or say the type itself", 60, sum_honestly},
      {"messages", "messages from one rank to another are received in the order of their sends",
       "one queue for each pair of ranks; other collectives must not take from it", 60, keep_messages_in_order},
      {"batches", "the members of collective_many progress together: an exchange of large messages ends",
       "start all members before you wait for one", 60, progress_in_a_batch},
      {"groups", "groups of any ranks in any order have collectives of their own, also while another group's are in flight",
       "keep a connection, or a tag, for each group", 60, keep_groups_apart},
      {"completion", "work_query says whether work_wait would return at once; work_block without a stream waits",
       "a work is over when its buffers may be used", 60, complete},
      {"time-out", "work_wait returns GANNET_TIMEOUT in time, and the work stays pending", "do not free the work, nor end it", 60,
       stay_pending},
      {"abort", "abort, from another thread, ends what is in flight with an error",
       "wake who waits: close the connections, set a flag that waits look at", 60, abort_from_outside},
      {"lost-peer", "when a rank is killed, the others get GANNET_PEER_LOST or GANNET_TIMEOUT within the time-out",
       "watch the connection while you wait", 90, lose_a_peer},
      {"counters", "calls are counted, bytes are those that were sent, and all that is sent is received",
       "count where you hand bytes to the transport", 60, count_honestly},
      {"memory", "allocate and register_buffer are all there or none is, and collectives work in such memory",
       "fill in all four functions, or none", 60, use_memory_of_the_plugin},
      {"refusals", "arguments that no rank may give are refused with a sentence, on this rank alone",
       "check before you send anything (gannet/sdk_comm.hpp does)", 60, refuse_wrong_arguments},
      {"newer-host", "structs that are longer than the header's, and strides to match, change nothing; arguments are only read",
       "read every array by its stride, and ask struct_size for no more than you need", 60, take_longer_structs},
      {"leaves-nothing-in-use", "works and batches give back all memory, files, threads and mappings",
       "free in work_free what a work holds", 90, leave_nothing_of_collectives},
      {"leaves-no-group", "groups give back all memory, files, threads and mappings",
       "free in group_destroy what group_create made", 90, leave_nothing_of_groups},
  };
}

}  // namespace gannet::kit
