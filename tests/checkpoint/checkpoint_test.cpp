#include "checkpoint/checkpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/wait.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>

#include "checkpoint/support.h"

namespace gannet::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST_F(CheckpointTest, tensors_of_every_dtype_and_shape_come_back_bit_for_bit) {
  Content content{.tag = "t"};
  for (auto dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte, at::kBool})
    content.slices.push_back(whole(std::string("of ") + c10::toString(dtype), at::randn({3, 5}).mul(50).to(dtype)));
  content.slices.push_back(whole("scalar", at::scalar_tensor(3.5)));
  content.slices.push_back(whole("empty", at::empty({0, 7})));
  content.slices.push_back(whole("larger than two blocks", at::randn({9 << 20})));
  Saver saver(folder(), {});
  const SaveResult result = saver.save(content, {});
  EXPECT_EQ(result.path, folder() + "/t");
  EXPECT_EQ(result.bytes, fs::file_size(file("t", "rank-00000.safetensors")));

  const Opened opened = open(folder(), {});
  EXPECT_THAT(opened.notes(), IsEmpty());
  EXPECT_EQ(opened.tensors().size(), content.slices.size());
  for (const Slice& slice : content.slices) {
    ASSERT_NE(opened.find(slice.name), nullptr) << slice.name;
    EXPECT_EQ(opened.find(slice.name)->shape, slice.shape);
    EXPECT_TRUE(at::equal(read_whole(opened, slice.name), slice.data)) << slice.name;
  }
  EXPECT_THAT(opened.verify(), IsEmpty());
}

TEST_F(CheckpointTest, what_the_page_cache_holds_is_read_from_there_and_checked_alike) {
  Content content{.tag = "t"};
  content.slices = {whole("large", at::randn({5 << 20})), whole("small", at::randn({100})), whole("later", at::randn({3 << 20}))};
  Saver(folder(), {}).save(content, {});
  const std::string path = file("t", "rank-00000.safetensors");
  const auto same = [&] {
    const Opened opened = open(folder(), {});
    for (const Slice& slice : content.slices) EXPECT_TRUE(at::equal(read_whole(opened, slice.name), slice.data)) << slice.name;
    EXPECT_THAT(opened.verify(), IsEmpty());
  };
  same();
  std::string text = read_text(path);  // now the cache has all of it
  same();
  const int descriptor = ::open(path.c_str(), O_RDONLY);  // and now all but the second block of it, where the kernel obliges
  ::posix_fadvise(descriptor, 4 << 20, 4 << 20, POSIX_FADV_DONTNEED);
  ::close(descriptor);
  same();
  text[text.size() / 2] ^= 1;
  write_text(path, text);
  EXPECT_THAT(open(folder(), {}).verify(), ElementsAre(HasSubstr("rank-00000.safetensors is damaged")));
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { read_whole(open(folder(), {}), "large"); }), HasSubstr("'large'"));
}

TEST_F(CheckpointTest, another_runs_checkpoints_are_told_and_kept) {
  for (const char* tag : {"old1", "old2"}) Saver(folder(), {}).save(small_content(tag), {.continues = true});
  {
    testing::internal::CaptureStderr();
    Saver another(folder(), {});
    for (const char* tag : {"new1", "new2", "new3"}) another.save(small_content(tag), {.keep = 1});
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_THAT(said, HasSubstr("holds 2 checkpoints of a run that this one did not resume from (`latest` is 'old2')"));
    EXPECT_EQ(said.find("did not resume from"), said.rfind("did not resume from")) << "once";
  }
  std::vector<std::string> tags;
  for (const ListedCheckpoint& one : list(folder())) tags.push_back(one.tag);
  EXPECT_THAT(tags, ElementsAre("new3", "old2", "old1"));
  Saver(folder(), {}).save(small_content("new4"), {.keep = 2, .continues = true});
  tags.clear();
  for (const ListedCheckpoint& one : list(folder())) tags.push_back(one.tag);
  EXPECT_THAT(tags, ElementsAre("new4", "new3"));
}

TEST_F(CheckpointTest, the_rank_file_is_plain_safetensors) {
  Saver(folder(), {}).save(small_content("t"), {});
  const std::string text = read_text(file("t", "rank-00000.safetensors"));
  EXPECT_THAT(text.substr(8, 200), HasSubstr(R"("b":{"dtype":"I64","shape":[7],"data_offsets":[0,56]})"));
  uint64_t length = 0;
  std::memcpy(&length, text.data(), 8);
  EXPECT_EQ((length + 8) % 4096, 0u) << "the data begins on a page";
}

TEST_F(CheckpointTest, documents_come_back_exactly) {
  const double inf = std::numeric_limits<double>::infinity();
  Content content = small_content("t");
  content.document = {{"integer", INT64_MIN},
                      {"tenth", 0.1},
                      {"whole", 3.0},
                      {"minus zero", -0.0},
                      {"smallest", 5e-324},
                      {"infinite", List{inf, -inf}},
                      {"text", "\"\n\t\u00fc \\"},
                      {"nothing", nullptr},
                      {"yes", true},
                      {"nested", Dict{{"empty", Dict{}}, {"list", List{1, 2.5, "x"}}}}};
  content.rank_document = {{"offset", 7}};
  Saver(folder(), {}).save(content, {});
  const Opened opened = open(folder(), {});
  EXPECT_EQ(Value(opened.document()).to_json(), Value(content.document).to_json());
  EXPECT_TRUE(Value(opened.document()) == Value(content.document));
  EXPECT_TRUE(std::signbit(opened.document().find("minus zero")->as_number()));
  EXPECT_TRUE(Value(opened.rank_document(0)) == Value(content.rank_document));
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { opened.rank_document(1); }), HasSubstr("saved by 1 ranks"));

  content.document = {{"nan", std::nan("")}};
  Saver(folder(), {}).save(content, {});
  EXPECT_TRUE(std::isnan(open(folder(), {}).document().find("nan")->as_number()));
}

TEST_F(CheckpointTest, what_three_ranks_saved_in_uneven_slices_is_read_at_any_split) {
  const at::Tensor weight = at::arange(1000, at::kFloat).view({10, 100}), rest = at::randn({17}).to(at::kBFloat16);
  const int64_t cuts[] = {0, 1, 700, 1000};
  ThreadRanks world(3);
  const auto errors = world.run([&](const Ranks& ranks) {
    Saver saver(folder(), ranks);
    Content content{.tag = "t"};
    const int64_t begin = cuts[ranks.rank], end = cuts[ranks.rank + 1];
    content.slices.push_back({"weight", {10, 100}, begin, weight.flatten().narrow(0, begin, end - begin)});
    if (ranks.rank == 1) content.slices.push_back(whole("rest", rest));
    if (ranks.rank == 2) content.slices.push_back({"rest", {17}, 17, rest.narrow(0, 17, 0)});  // its share may be nothing
    content.document = {{"from", static_cast<int64_t>(ranks.rank)}};
    content.rank_document = {{"rank", static_cast<int64_t>(ranks.rank)}};
    saver.save(content, {});
  });
  EXPECT_THAT(errors, ElementsAre("", "", ""));

  const Opened opened = open(folder(), {});
  EXPECT_EQ(opened.world_size(), 3u);
  EXPECT_EQ(opened.document().find("from")->as_int(), 0);
  EXPECT_EQ(opened.rank_document(2).find("rank")->as_int(), 2);
  EXPECT_THAT(opened.verify(), IsEmpty());
  EXPECT_TRUE(at::equal(read_whole(opened, "weight"), weight));
  EXPECT_TRUE(at::equal(read_whole(opened, "rest"), rest));
  for (int64_t parts : {1, 2, 4, 7}) {
    at::Tensor into = at::zeros({1000});
    std::vector<Target> targets;
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t begin = 1000 * part / parts, end = 1000 * (part + 1) / parts;
      targets.push_back({"weight", begin, into.narrow(0, begin, end - begin)});
    }
    opened.read(targets);
    EXPECT_TRUE(at::equal(into, weight.flatten())) << parts;
  }
}

TEST_F(CheckpointTest, slices_that_do_not_cover_their_tensor_are_refused_on_every_rank) {
  const at::Tensor data = at::zeros({10});
  struct Case {
    int64_t begin0, end0, begin1, end1;
    const char* reason;
  };
  for (const Case& c : {Case{0, 5, 6, 10, "misses elements 5 to 6 of 10"}, Case{0, 6, 5, 10, "has elements 5 to 6 twice"},
                        Case{0, 5, 5, 9, "misses elements 9 to 10 of 10"}}) {
    const auto errors = ThreadRanks(2).run([&](const Ranks& ranks) {
      Saver saver(folder(), ranks);
      const int64_t begin = ranks.rank ? c.begin1 : c.begin0, end = ranks.rank ? c.end1 : c.end0;
      saver.save({.tag = "t", .slices = {{"w", {10}, begin, data.narrow(0, begin, end - begin)}}}, {});
    });
    EXPECT_EQ(errors[0], errors[1]);
    EXPECT_THAT(errors[0], AllOf(HasSubstr("tensor 'w'"), HasSubstr(c.reason)));
    EXPECT_FALSE(fs::exists(folder() + "/t"));
  }
}

TEST_F(CheckpointTest, ranks_that_differ_are_told_apart) {
  auto both = [&](const std::function<Content(uint32_t)>& content) {
    const auto errors = ThreadRanks(2).run([&](const Ranks& ranks) { Saver(folder(), ranks).save(content(ranks.rank), {}); });
    EXPECT_EQ(errors[0], errors[1]);
    return errors[0];
  };
  EXPECT_THAT(both([](uint32_t rank) { return Content{.tag = rank ? "x" : "y"}; }), HasSubstr("rank 0 'y', rank 1 \"x\""));
  EXPECT_THAT(both([](uint32_t rank) { return Content{.tag = "t", .slices = {{"w", {rank ? 4 : 5}, 0, at::zeros({2})}}}; }),
              HasSubstr("tensor 'w' is F32 [5] on rank 0 and F32 [4] on rank 1"));
  EXPECT_THAT(both([](uint32_t rank) {
                return Content{
                    .tag = "t",
                    .slices = {whole("w" + std::to_string(rank), rank ? at::zeros({4, 4}).t().narrow(0, 0, 2) : at::zeros({1}))}};
              }),
              AllOf(HasSubstr("rank 1: "), HasSubstr("not contiguous")));
}

TEST_F(CheckpointTest, what_cannot_be_saved_is_refused_with_its_name) {
  Saver saver(folder(), {});
  auto refused = [&](const Content& content, ErrorCode code = ErrorCode::kArgument) {
    return error_of(code, [&] { saver.save(content, {}); });
  };
  for (const char* tag : {"", "latest", ".hidden", "a/b", "..", "line\nbreak"})
    EXPECT_THAT(refused({.tag = tag}), HasSubstr("the tag"));
  EXPECT_THAT(refused({.tag = "t", .slices = {whole("z", at::zeros({1}, at::kComplexFloat))}}), HasSubstr("'z'"));
  EXPECT_THAT(refused({.tag = "t", .slices = {{"u", {1}, 0, at::Tensor()}}}), HasSubstr("undefined"));
  EXPECT_THAT(refused({.tag = "t", .slices = {whole("d", at::zeros({1})), whole("d", at::zeros({1}))}}), HasSubstr("twice"));
  EXPECT_THAT(refused({.tag = "t", .slices = {{"o", {2}, 1, at::zeros({2})}}}), HasSubstr("not inside its 2 elements"));
  EXPECT_THAT(refused({.tag = "t", .document = {{"bad", "\xff"}}}), HasSubstr("UTF-8"));
  EXPECT_THAT(refused({.tag = "t", .slices = {whole("\xff", at::zeros({1}))}}), HasSubstr("UTF-8"));
  fs::create_directories(folder() + "/mine");
  write_text(folder() + "/mine/thesis.tex", "x");
  EXPECT_THAT(refused({.tag = "mine"}), HasSubstr("would be replaced"));
  write_text(folder() + "/file", "x");
  EXPECT_THAT(refused({.tag = "file"}), HasSubstr("is a file"));
  EXPECT_TRUE(fs::exists(folder() + "/mine/thesis.tex"));
}

TEST_F(CheckpointTest, a_tag_saved_twice_holds_the_second) {
  Saver saver(folder(), {});
  saver.save(small_content("t", 1), {});
  saver.save(small_content("t", 2), {});
  const Opened opened = open(folder(), {.tag = "t"});
  EXPECT_EQ(opened.document().find("global_steps")->as_int(), 2);
  EXPECT_TRUE(at::equal(read_whole(opened, "a"), at::full({5, 3}, 2, at::kFloat)));
  size_t entries = 0;
  for (const auto& entry : fs::directory_iterator(folder())) entries += entry.path().filename() != ".gannet.lock";
  EXPECT_EQ(entries, 2u) << "the tag, latest, and nothing staged";
}

TEST_F(CheckpointTest, the_newest_n_are_kept_and_never_less_than_one) {
  Saver saver(folder(), {});
  for (int step = 1; step <= 5; ++step) saver.save(small_content("step" + std::to_string(step), step), {.keep = 2});
  auto tags = [&] {
    std::vector<std::string> found;
    for (const ListedCheckpoint& one : list(folder())) found.push_back(one.tag);
    return found;
  };
  EXPECT_THAT(tags(), ElementsAre("step5", "step4"));

  // A broken one counts for nothing and is not removed; what `latest` names stays.
  fs::resize_file(file("step5", "rank-00000.safetensors"), 100);
  saver.save(small_content("step6", 6), {.save_latest = false, .keep = 1});
  EXPECT_THAT(tags(), ElementsAre("step6", "step5"));
  saver.save(small_content("step7", 7), {.keep = 1});
  saver.save(small_content("step8", 8), {.save_latest = false, .keep = 1});
  EXPECT_THAT(tags(), ElementsAre("step8", "step7", "step5"));
  EXPECT_EQ(open(folder(), {}).tag(), "step7");
}

TEST_F(CheckpointTest, the_order_of_saves_does_not_depend_on_the_clock_or_the_names) {
  Saver(folder(), {}).save(small_content("z"), {});
  Saver(folder(), {}).save(small_content("a"), {});
  const auto listed = list(folder());
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0].tag, "a");
  EXPECT_TRUE(listed[0].is_latest);
  EXPECT_FALSE(listed[1].is_latest);
  EXPECT_EQ(listed[0].step, 1);
  EXPECT_EQ(listed[0].saved_at.size(), std::string("2026-01-01T00:00:00.000Z").size());
}

TEST_F(CheckpointTest, a_second_job_is_refused_and_both_are_named) {
  Saver first(folder(), {});
  const std::string message = error_of(ErrorCode::kUnavailable, [&] { Saver second(folder(), {}); });
  EXPECT_THAT(message, AllOf(HasSubstr("process"), HasSubstr(std::to_string(::getpid())), HasSubstr(folder())));
}

TEST_F(CheckpointTest, another_living_process_is_named_with_its_host_and_a_dead_one_is_taken_over) {
  fs::create_directories(folder());
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto* forever = new Saver(folder(), {});
    (void)forever;
    (void)!::write(ready[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char letter;
  ASSERT_EQ(::read(ready[0], &letter, 1), 1);
  char host[256];
  ::gethostname(host, sizeof(host));
  const std::string message = error_of(ErrorCode::kUnavailable, [&] { Saver second(folder(), {}); });
  EXPECT_THAT(message, AllOf(HasSubstr("process " + std::to_string(child)), HasSubstr(host), HasSubstr("since 20")));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  Saver third(folder(), {});
  third.save(small_content("t"), {});
  EXPECT_EQ(open(folder(), {}).tag(), "t");
}

TEST_F(CheckpointTest, a_lock_that_a_dead_jobs_child_still_holds_is_taken_over) {
  fs::create_directories(folder());
  const std::string lock = folder() + "/.gannet.lock";
  int held = ::open(lock.c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  char host[256], space[256] = "";
  ::gethostname(host, sizeof(host));
  (void)!::readlink("/proc/self/ns/pid", space, sizeof(space) - 1);
  // This very process id with another start time: the number was reused.
  write_text(lock, std::string("{\"host\":\"") + host + "\",\"pid\":" + std::to_string(::getpid()) +
                       ",\"started\":\"1\",\"pid_namespace\":\"" + space + "\",\"since\":\"then\"}");
  {
    Saver saver(folder(), {});
  }
  write_text(lock, "{\"host\":\"elsewhere\",\"pid\":1,\"started\":\"1\",\"since\":\"then\"}");
  ::close(held);
  held = ::open(lock.c_str(), O_RDWR | O_CREAT, 0666);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { Saver saver(folder(), {}); }), HasSubstr("on host elsewhere, since then"));
  ::close(held);
}

TEST_F(CheckpointTest, what_a_dead_job_left_half_done_is_cleared_away) {
  {
    Saver(folder(), {}).save(small_content("good"), {});
  }
  fs::create_directories(folder() + "/.next.tmp-123-1");
  write_text(folder() + "/.next.tmp-123-1/rank-00000.safetensors", "half");
  fs::rename(folder() + "/good",
             folder() + "/.good.old-123-2");  // killed while it replaced a tag, where folders cannot be exchanged
  write_text(folder() + "/.mine.tmp", "not ours");
  EXPECT_EQ(open(folder(), {}).tag(), "good");
  {
    Saver saver(folder(), {});
  }
  EXPECT_FALSE(fs::exists(folder() + "/.next.tmp-123-1"));
  EXPECT_FALSE(fs::exists(folder() + "/.good.old-123-2"));
  EXPECT_TRUE(fs::exists(folder() + "/.mine.tmp"));
  EXPECT_FALSE(fs::exists(folder() + "/.gannet.lock"));
  EXPECT_EQ(open(folder(), {}).tag(), "good");
}

TEST_F(CheckpointTest, what_is_not_there_is_said_in_a_sentence) {
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { open(folder(), {}); }), HasSubstr("there is no folder " + folder()));
  fs::create_directories(folder());
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { open(folder(), {}); }), HasSubstr("there is no checkpoint in"));
  fs::create_directories(folder() + "/.x.tmp-1-1");
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { open(folder(), {}); }), HasSubstr("only a save that was not finished"));
  write_text(root_ / "file", "x");
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { open((root_ / "file").string(), {}); }), HasSubstr("is a file"));
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { Saver saver((root_ / "file").string(), {}); }), HasSubstr("is a file"));
  {
    Saver saver(folder(), {});
    for (const char* tag : {"step10", "step20", "final"}) saver.save(small_content(tag), {});
  }
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { open(folder(), {.tag = "step30"}); }),
              AllOf(HasSubstr("no checkpoint 'step30'"), HasSubstr("nearest are"), HasSubstr("step10"), HasSubstr("step20")));
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { open(folder(), {.tag = "zzzzzzzzzzzz"}); }), HasSubstr("final"));
  EXPECT_THAT(error_of(ErrorCode::kNotFound, [&] { open(folder() + "/final", {}); }),
              AllOf(HasSubstr("is itself a checkpoint"), HasSubstr("'final' as the tag")));
  const Opened opened = open(folder(), {});
  at::Tensor into = at::empty({16}, at::kFloat);
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { opened.read({{"nothing", 0, into}}); }), HasSubstr("'nothing' is not in"));
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { opened.read({{"a", 0, into}}); }), HasSubstr("has 15 elements"));
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { opened.read({{"b", 0, into.narrow(0, 0, 7)}}); }), HasSubstr("is Long"));
}

TEST_F(CheckpointTest, a_broken_newest_falls_back_with_a_note) {
  {
    Saver saver(folder(), {});
    for (int step : {1, 2, 3}) saver.save(small_content("step" + std::to_string(step), step), {});
  }
  EXPECT_EQ(open(folder(), {.avoid = {"step3"}}).tag(), "step2");
  EXPECT_THAT(open(folder(), {.avoid = {"step3"}}).notes(), ElementsAre(HasSubstr("step3: ")));
  fs::resize_file(file("step3", "rank-00000.safetensors"), 4096);
  fs::remove(file("step2", "rank-00000.safetensors"));
  const Opened opened = open(folder(), {});
  EXPECT_EQ(opened.tag(), "step1");
  EXPECT_THAT(opened.notes(), ElementsAre(AllOf(HasSubstr("step3: rank-00000.safetensors is truncated"), HasSubstr("used step1")),
                                          HasSubstr("step2: rank-00000.safetensors is missing")));
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { open(folder(), {.tag = "step3"}); }), HasSubstr("truncated"));
  fs::remove(file("step1", "manifest.json"));
  EXPECT_THAT(error_of(ErrorCode::kCorrupt, [&] { open(folder(), {}); }),
              AllOf(HasSubstr("step1: manifest.json is missing"), HasSubstr("step2: "), HasSubstr("step3: ")));
}

TEST_F(CheckpointTest, latest_that_points_nowhere_or_is_missing_is_explained) {
  {
    Saver saver(folder(), {});
    for (int step : {1, 2}) saver.save(small_content("step" + std::to_string(step), step), {});
  }
  write_text(folder() + "/latest", "step1");  // as people and DeepSpeed write it
  EXPECT_EQ(open(folder(), {}).tag(), "step1");
  EXPECT_THAT(open(folder(), {}).notes(), ElementsAre(HasSubstr("`latest` has no checksum"), HasSubstr("'step2' is newer")));
  write_text(folder() + "/latest", "step9\n");
  EXPECT_EQ(open(folder(), {}).tag(), "step2");
  EXPECT_THAT(open(folder(), {}).notes(), ElementsAre("`latest` names 'step9', which is not there; used step2"));
  write_text(folder() + "/latest", "");
  EXPECT_THAT(open(folder(), {}).notes(), ElementsAre(HasSubstr("`latest` is damaged")));
  fs::remove(folder() + "/latest");
  EXPECT_THAT(open(folder(), {}).notes(), ElementsAre("`latest` is missing; used step2"));
  fs::create_directories(folder() + "/latest");
  EXPECT_THAT(open(folder(), {}).notes(), ElementsAre("`latest` is not a regular file; used step2"));
}

}  // namespace
}  // namespace gannet::checkpoint
