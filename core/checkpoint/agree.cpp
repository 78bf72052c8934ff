#include "checkpoint/agree.h"

#include <gannet/error.h>

#include <new>
#include <optional>

#include "base/check.h"
#include "base/format.h"

namespace gannet::checkpoint {
namespace {

Json failure(ErrorCode code, const std::string& message, const std::string& next_step) {
  return {{"error", message}, {"code", static_cast<int>(code)}, {"next_step", next_step}};
}

Json outcome(const std::function<Json()>& part) {
  try {
    return {{"result", part()}};
  } catch (const Error& error) {
    return failure(error.code(), error.message(), error.next_step());
  } catch (const std::bad_alloc&) {
    return failure(ErrorCode::kOutOfMemory, "the checkpoint's buffers could not be allocated", "");
  } catch (const std::exception& error) {
    return failure(ErrorCode::kInternal, error.what(), "");
  }
}

}  // namespace

std::vector<Json> agree(const Ranks& ranks, const std::string& what, const std::function<Json()>& part) {
  // A message may hold bytes that are not UTF-8 (a path's). To throw here would leave the other ranks in the gather.
  const std::string mine = outcome(part).dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::vector<std::string> texts = ranks.gather ? ranks.gather(what, mine) : std::vector<std::string>{mine};
  GANNET_CHECK(texts.size() == ranks.size, formatted("gathered {} texts of {} ranks", texts.size(), ranks.size));

  std::vector<Json> results;
  std::optional<Error> first;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    Json json = Json::parse(texts[rank], nullptr, false);
    GANNET_CHECK(json.is_object(), formatted("rank {} gave no JSON: {}", rank, texts[rank].substr(0, 200)));
    if (!json.contains("error")) {
      results.push_back(std::move(json["result"]));
    } else if (!first) {
      const std::string who = ranks.size > 1 ? formatted("rank {}: ", rank) : "";
      first.emplace(static_cast<ErrorCode>(json["code"].get<int>()), who + json["error"].get<std::string>(),
                    json["next_step"].get<std::string>());
    }
  }
  if (first) throw *first;
  return results;
}

}  // namespace gannet::checkpoint
