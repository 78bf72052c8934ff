// Lets ranks at ZeRO stage 3 do different amounts of work: a rank that is done answers the others'
// requests, and an error on one rank is raised on all.
#include <ATen/core/grad_mode.h>
#include <gannet/log.h>
#include <gannet/zero.h>

#include <exception>
#include <utility>

#include "base/format.h"
#include "control/world.h"
#include "engine/impl.h"

namespace gannet {
namespace zero {

struct AnswerUntilAllAreDone::State {
  EngineBase::Impl* impl;
  std::optional<control::Watch::Call> call;  // covers the forwards inside it: ranks may run different numbers of them
  int exceptions = std::uncaught_exceptions();
  bool is_over = false;
};

AnswerUntilAllAreDone::AnswerUntilAllAreDone(EngineBase& engine) : state_(std::make_unique<State>()) {
  state_->impl = &engine.impl();
  if (!state_->impl->store.gathers() || state_->impl->comm->size() == 1)
    state_->is_over = true;
  else
    state_->call.emplace(state_->impl->process_group->world()->watch(), *state_->impl->world_group, "AnswerUntilAllAreDone", -1,
                         "", control::Watch::Call::kAtOnce);
}

void AnswerUntilAllAreDone::wait() {
  if (std::exchange(state_->is_over, true)) return;
  at::NoGradGuard no_grad;
  state_->impl->store.residency()->end();
  state_->impl->store.answer();
}

void AnswerUntilAllAreDone::fail(const std::string& call, const std::string& error) noexcept {
  if (std::exchange(state_->is_over, true)) return;
  state_->impl->process_group->report_failure(call, error);
}

AnswerUntilAllAreDone::~AnswerUntilAllAreDone() {
  if (std::uncaught_exceptions() > state_->exceptions) {
    fail("AnswerUntilAllAreDone", "an exception");
    return;
  }
  try {
    wait();
  } catch (const std::exception& error) {
    log(LogLevel::kError, std::string("while answering the other ranks: ") + error.what());
  }
}

}  // namespace zero

namespace detail {

void agree_on_prompts(EngineBase& engine, const std::optional<Error>& mistake) {
  EngineBase::Impl& impl = engine.impl();
  const bool is_together = impl.store.gathers() && impl.comm->size() > 1;
  const auto all = is_together ? engine.gather(mistake ? mistake->message() : "") : std::vector<std::string>();
  if (mistake) throw *mistake;
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (!all[rank].empty())
      throw Error(ErrorCode::kArgument, formatted("generate: rank {} was refused, and all ranks with it: {}", rank, all[rank]),
                  "at ZeRO stage 3 all ranks generate together: correct what that rank gave");
}

}  // namespace detail

}  // namespace gannet
