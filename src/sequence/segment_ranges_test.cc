// Segments that are cut from ranges and joined into ranges: SegmentWriter and SegmentLoader over an
// engine that moves several segments at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sequence/range_mover.h"
#include "sequence/segment_loader.h"
#include "sequence/segment_writer.h"
#include "support/segment_rig.h"

namespace stemma::test {
namespace {

using sequence::RangeMover;
using sequence::SegmentLoader;
using sequence::SegmentWriter;

constexpr uint32_t kSegment = SegmentRig::kTokens;
constexpr uint64_t kNoEnd = ~uint64_t{0};

// Like ScriptedSaver, but a few segments at a time.
class RangeSaver final : public Saver {
 public:
  RangeSaver(FakeSequences& engine, uint32_t most) : engine_(engine), most_(most) {}
  uint32_t most_tokens() const noexcept override { return most_; }
  Result<uint64_t> size(Range range) override {
    return engine_.size(SegmentRig::kSource, Part::segment, range);
  }
  Result<uint64_t> save(Range range, std::span<uint8_t> out) override {
    read.push_back(range);
    if (fails) return Error(Errc::copy_failed, "not saved");
    return engine_.save(SegmentRig::kSource, Part::segment, range, out);
  }
  sequence::PartLabel saved(Range segment, std::span<const uint8_t> bytes) override {
    EXPECT_FALSE(bytes.empty());
    committed.push_back(segment);
    return {};
  }
  std::vector<Range> read;
  std::vector<Range> committed;
  bool fails = false;

 private:
  FakeSequences& engine_;
  uint32_t most_;
};

// A rig whose engine moves ranges of four segments.
class MovedRanges : public ::testing::Test {
 protected:
  MovedRanges() {
    engine_.emplace(FakeSequences::Options{
        .sequences = 2, .context_tokens = 4096, .range_tokens = 4 * kSegment});
    const EngineTraits traits = engine_->traits();
    mover_ = RangeMover::create(
        {.buffer_bytes = traits.fixed_bytes + 4 * kSegment * traits.bytes_per_token,
         .buffers = 4,
         .threads = 2,
         .hook = nullptr});
    settings_.segment_tokens = kSegment;
    settings_.segment_bytes = traits.fixed_bytes + kSegment * traits.bytes_per_token;
    settings_.budget_bytes = 64 * (settings_.segment_bytes + SegmentRig::index_bytes());
    settings_.clock = &clock_;
    settings_.engine = &*engine_;
    settings_.mover = mover_.get();
    store_ = ok(SegmentStore::create(settings_));
  }
  ~MovedRanges() override { store_->check_invariants(); }

  void compute(const Text& text) {
    ok(engine_->clear(SegmentRig::kSource));
    ok(engine_->compute(SegmentRig::kSource, text.tokens));
  }
  Captured capture(const Text& text, RangeSaver& saver) {
    compute(text);
    return store_->capture(scope_, text, kNoTenant, {}, saver);
  }
  Captured capture(const Text& text) {
    RangeSaver saver(*engine_, 4 * kSegment);
    return capture(text, saver);
  }
  // Loads [begin, hold.usable) behind what the target holds. Returns "" or the error.
  std::string load(const SegmentStore::Hold& hold, uint32_t begin, const Text& text) {
    std::vector<SavedSegment> pieces;
    ok(store_->list(hold, {begin, hold.usable}, pieces));
    SegmentLoader loader(*store_, pieces);
    loads_ = 0;
    for (;;) {
      const auto next = loader.next();
      if (!next) return next.error().to_string() + " at " + std::to_string(loader.bad());
      if (!next->has_value()) break;
      ++loads_;
      const SegmentLoader::Ready& ready = **next;
      const Result<void> loaded =
          engine_->load(SegmentRig::kTarget, Part::segment, ready.range, ready.range, ready.bytes);
      if (!loaded) return loaded.error().to_string();
    }
    return engine_->right(SegmentRig::kTarget, text.first(hold.usable).tokens);
  }
  SegmentStore::Hold hold(const Text& text) {
    return store_->hold(scope_, text, text.size(), kNoTenant, {});
  }

  ManualClock clock_;
  std::optional<FakeSequences> engine_;
  std::unique_ptr<RangeMover> mover_;
  SegmentStore::Settings settings_;
  std::unique_ptr<SegmentStore> store_;
  Scope scope_ = scope_of({.model = "m"});
  uint32_t loads_ = 0;
};

TEST_F(MovedRanges, AreReadInFewCallsAndFoundAsSegments) {
  for (const uint32_t length : {1U, 15U, 16U, 17U, 64U, 65U, 200U}) {
    const Text text = tokens(length, length);
    RangeSaver saver(*engine_, 4 * kSegment);
    EXPECT_EQ(capture(text, saver).fate, CaptureFate::saved);
    EXPECT_EQ(saver.read.size(), (length + 63) / 64);
    EXPECT_EQ(saver.committed.size(), (length + 15) / 16);
    ok(engine_->clear(SegmentRig::kTarget));
    const SegmentStore::Hold held = hold(text);
    EXPECT_EQ(held.usable, length);
    EXPECT_EQ(load(held, 0, text), "");
    EXPECT_LE(loads_, (length + 63) / 64 + 1);
  }
}

TEST_F(MovedRanges, PutSegmentsOfSeveralCapturesTogether) {
  const Text head = tokens(100);
  EXPECT_EQ(capture(head).fate, CaptureFate::saved);
  const Text text = head + tokens(90, 5);
  RangeSaver saver(*engine_, 4 * kSegment);
  EXPECT_EQ(capture(text, saver).fate, CaptureFate::saved);
  EXPECT_EQ(saver.read.front().begin, 96U);  // The last segment of the head was not full.
  // A prompt that parts from both inside a segment, behind what a sequence already holds.
  const Text prompt = text.first(150) + tokens(20, 9);
  const SegmentStore::Hold held = hold(prompt);
  EXPECT_EQ(held.usable, 150U);
  for (const uint32_t begin : {0U, 7U, 16U, 149U}) {
    ok(engine_->clear(SegmentRig::kTarget));
    if (begin != 0) ok(engine_->compute(SegmentRig::kTarget, text.first(begin).tokens));
    EXPECT_EQ(load(held, begin, prompt), "");
  }
}

TEST_F(MovedRanges, DamageIsNoticedBeforeAnythingOfTheRangeIsHandedOut) {
  const Text text = tokens(200);
  EXPECT_EQ(capture(text).fate, CaptureFate::saved);
  const SegmentStore::Hold held = hold(text);
  std::vector<SavedSegment> pieces;
  ok(store_->list(held, {0, held.usable}, pieces));
  for (const size_t damaged : {size_t{0}, size_t{5}, pieces.size() - 1}) {
    const std::span<const uint8_t> saved = ok(store_->read(pieces[damaged].slot));
    // Only failing memory could write here.
    uint8_t& byte = const_cast<uint8_t&>(saved[saved.size() - 3]);
    byte ^= 4;
    ok(engine_->clear(SegmentRig::kTarget));
    const std::string why = load(held, 0, text);
    EXPECT_NE(why.find("at " + std::to_string(pieces[damaged].saved.begin)), std::string::npos)
        << why;
    EXPECT_LE(engine_->held(SegmentRig::kTarget).end, pieces[damaged].saved.begin);
    byte ^= 4;
  }
  ok(engine_->clear(SegmentRig::kTarget));
  EXPECT_EQ(load(held, 0, text), "");
}

TEST_F(MovedRanges, WriterGoesOnBitByBitAndTheSequenceMayChangeMeanwhile) {
  const Text text = tokens(160);
  compute(text);
  RangeSaver saver(*engine_, 4 * kSegment);
  SegmentWriter writer(store_.get());
  writer.begin(scope_, text, kNoTenant, {}, saver);
  EXPECT_TRUE(writer.read(saver));
  EXPECT_EQ(writer.next(), 64U);
  // What was read is no longer needed; the rest is given up.
  ok(engine_->clear(SegmentRig::kSource));
  writer.limit(100);
  EXPECT_TRUE(writer.reads());
  writer.limit(0);
  EXPECT_FALSE(writer.reads());
  writer.wait();
  EXPECT_TRUE(writer.collect(saver, kNoEnd));
  EXPECT_TRUE(writer.over());
  EXPECT_EQ(writer.captured().fate, CaptureFate::saved);
  EXPECT_EQ(store_->reach(scope_, text, 160).usable, 64U);
}

TEST_F(MovedRanges, WriterThatIsLetGoLeavesWholeSegmentsOnly) {
  const Text text = tokens(160);
  compute(text);
  RangeSaver saver(*engine_, 4 * kSegment);
  {
    SegmentWriter writer(store_.get());
    writer.begin(scope_, text, kNoTenant, {}, saver);
    EXPECT_TRUE(writer.read(saver));
    EXPECT_TRUE(writer.read(saver));
    EXPECT_FALSE(writer.read(saver));  // The other two buffers are for loading.
  }
  EXPECT_EQ(store_->reach(scope_, text, 160).usable, 0U);
  // And every buffer is back.
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(mover_->wait_for_buffer());
    EXPECT_NE(mover_->take(), RangeMover::kNone);
  }
}

TEST_F(MovedRanges, FailedReadKeepsWhatCameBefore) {
  const Text text = tokens(160);
  compute(text);
  RangeSaver saver(*engine_, 4 * kSegment);
  SegmentWriter writer(store_.get());
  writer.begin(scope_, text, kNoTenant, {}, saver);
  EXPECT_TRUE(writer.read(saver));
  saver.fails = true;
  EXPECT_TRUE(writer.read(saver));
  EXPECT_FALSE(writer.reads());
  writer.wait();
  EXPECT_TRUE(writer.collect(saver, kNoEnd));
  EXPECT_EQ(writer.captured().fate, CaptureFate::failed);
  EXPECT_EQ(store_->reach(scope_, text, 160).usable, 64U);
}

// If an engine claims to have written but has not, the bytes that another left in the buffer must
// not be saved.
TEST_F(MovedRanges, BytesThatWereNotWrittenAreNobodysElse) {
  const Text first = tokens(64, 1);
  compute(first);
  // The first text has been in every buffer, and all of them are free again.
  std::vector<uint32_t> buffers;
  for (uint32_t i = 0; i < mover_->buffers(); ++i) buffers.push_back(mover_->take());
  for (const uint32_t buffer : buffers) {
    const std::span<uint8_t> memory = mover_->bytes(buffer);
    const uint64_t used = ok(engine_->save(SegmentRig::kSource, Part::segment, {0, 64}, memory));
    mover_->give_back(buffer, used);
  }
  buffers.clear();
  while (buffers.size() < mover_->buffers()) {
    ASSERT_TRUE(mover_->wait_for_buffer());
    buffers.push_back(mover_->take());
  }
  for (const uint32_t buffer : buffers) mover_->give_back(buffer, 0);
  const Text second = tokens(64, 2);
  compute(second);
  engine_->faults.next(Call::save, Fault::lie_nothing);
  RangeSaver saver(*engine_, 4 * kSegment);
  (void)store_->capture(scope_, second, kNoTenant, {}, saver);
  ok(engine_->clear(SegmentRig::kTarget));
  const SegmentStore::Hold held = hold(second);
  if (held.usable != 0) (void)load(held, 0, second);
  // Had the buffer kept what was there before, the first text would be found under the second one's
  // words.
  EXPECT_NE(engine_->right(SegmentRig::kTarget, first.tokens), "");
}

}  // namespace
}  // namespace stemma::test
