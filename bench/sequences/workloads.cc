#include "bench/sequences/workloads.h"

#include <algorithm>
#include <utility>

#include "bench/sequences/conversation.h"

namespace stemma::bench::sequences {
namespace {

Tokens question(Random& random) { return random.words(random.between(12, 80)); }
uint32_t answer_size(Random& random) { return random.between(40, 160); }

Request chat_turn(Conversation& chat, Random& random) {
  chat.say(Role::user, question(random));
  return chat.turn(answer_size(random));
}

std::string numbered(const char* what, uint32_t number) { return what + std::to_string(number); }

// ---- Agents -------------------------------------------------------------------------------------

// Calls tools for this many turns.
void call_tools(Conversation& agent, uint32_t turns, Queue& out, Random& random) {
  for (uint32_t i = 0; i < turns; ++i) {
    out.push_back(agent.turn(random.between(20, 80)));
    agent.say(Role::tool, random.words(random.between(60, 320)));
  }
}

// Sub-agents begin with everything the agent knows. Their reports come back as the result of a
// tool.
void hand_out(Conversation& agent, const std::string& task, Queue& out, Random& random) {
  std::vector<Queue> at_once;
  const uint32_t count = random.between(2, 3);
  for (uint32_t i = 0; i < count; ++i) {
    Conversation sub = agent;
    sub.rename(task + numbered("/sub-", static_cast<uint32_t>(agent.messages()) + i));
    sub.say(Role::user, random.words(random.between(30, 90)));
    call_tools(sub, random.between(2, 4), at_once.emplace_back(), random);
    at_once.back().push_back(sub.turn(random.between(60, 120)));
  }
  for (uint32_t i = 0; i < count; ++i) {
    agent.say(Role::tool, random.words(random.between(60, 120)));
  }
  Queue merged = interleave(std::move(at_once), count, random);
  std::move(merged.begin(), merged.end(), std::back_inserter(out));
}

// Two answers to the same prompt are followed for a while; one of them wins.
void try_two(Conversation& agent, const std::string& task, Queue& out, Random& random) {
  std::vector<Queue> at_once(2);
  std::vector<Conversation> ways;
  for (uint32_t i = 0; i < 2; ++i) {
    Conversation& way = ways.emplace_back(agent);
    way.rename(task + numbered("/way-", i));
    const Request first = way.ask(random.between(20, 80), i);
    way.hear(first);
    at_once[i].push_back(first);
    way.say(Role::tool, random.words(random.between(60, 320)));
    call_tools(way, 2, at_once[i], random);
  }
  Queue merged = interleave(std::move(at_once), 2, random);
  std::move(merged.begin(), merged.end(), std::back_inserter(out));
  agent = ways[random.between(0, 1)];
  agent.rename(task);
}

Queue run_task(Conversation agent, const std::string& task, Random& random) {
  Queue out;
  agent.rename(task);
  agent.say(Role::user, random.words(random.between(60, 200)));
  call_tools(agent, random.between(2, 4), out, random);
  hand_out(agent, task, out, random);
  call_tools(agent, random.between(1, 3), out, random);
  try_two(agent, task, out, random);
  call_tools(agent, random.between(1, 2), out, random);
  hand_out(agent, task, out, random);
  out.push_back(agent.turn(random.between(100, 200)));
  return out;
}

}  // namespace

Tokens Request::whole() const {
  Tokens all = prompt;
  all.insert(all.end(), answer.begin(), answer.end());
  return all;
}

std::vector<uint32_t> Request::message_ends() const {
  std::vector<uint32_t> ends;
  for (const Message& message : messages) ends.push_back(message.end);
  return ends;
}

uint64_t Workload::prompt_tokens() const {
  uint64_t sum = 0;
  for (const Request& request : requests) sum += request.prompt.size();
  return sum;
}

uint64_t Workload::answer_tokens() const {
  uint64_t sum = 0;
  for (const Request& request : requests) sum += request.answer.size();
  return sum;
}

uint32_t Workload::longest_tokens() const {
  size_t longest = 0;
  for (const Request& request : requests) {
    longest = std::max(longest, request.prompt.size() + request.answer.size());
  }
  return static_cast<uint32_t>(longest);
}

Workload shared_prompt(uint64_t seed) {
  Random random(seed);
  Conversation head("");
  head.say(Role::system, random.words(1000));
  std::vector<Queue> users;
  for (uint32_t user = 0; user < 100; ++user) {
    Conversation chat = head;
    chat.rename(numbered("user-", user));
    Queue& queue = users.emplace_back();
    const uint32_t turns = random.between(2, 6);
    for (uint32_t i = 0; i < turns; ++i) queue.push_back(chat_turn(chat, random));
  }
  return {.name = "shared prompt",
          .about = "100 users behind one system prompt",
          .much_shared = true,
          .requests = interleave(std::move(users), 16, random)};
}

Workload agent_turns(uint64_t seed) {
  Random random(seed);
  Conversation head("");
  head.say(Role::system, random.words(1200));  // Mostly the tools.
  std::vector<Queue> tasks;
  for (uint32_t i = 0; i < 8; ++i) tasks.push_back(run_task(head, numbered("task-", i), random));
  return {.name = "agent turns",
          .about = "tool calls, sub-agents with the agent's context, two ways at once",
          .much_shared = true,
          .context_tokens = 12'288,
          .requests = interleave(std::move(tasks), 3, random)};
}

Workload regenerate(uint64_t seed) {
  Random random(seed);
  Conversation head("");
  head.say(Role::system, random.words(250));
  std::vector<Queue> users;
  for (uint32_t user = 0; user < 12; ++user) {
    Conversation chat = head;
    chat.rename(numbered("user-", user));
    Queue& queue = users.emplace_back();
    for (uint32_t turn = 0; turn < 8; ++turn) {
      chat.say(Role::user, question(random));
      uint32_t attempts = 1;
      if (random.one_in(2)) attempts += random.between(1, 2);
      for (uint32_t i = 0; i < attempts; ++i) {
        queue.push_back(chat.ask(answer_size(random), i));
      }
      chat.hear(queue.back());
    }
  }
  return {.name = "regenerate",
          .about = "the last answer once more, or twice",
          .requests = interleave(std::move(users), 6, random)};
}

Workload edit_earlier(uint64_t seed) {
  Random random(seed);
  Conversation head("");
  head.say(Role::system, random.words(250));
  std::vector<Queue> users;
  for (uint32_t user = 0; user < 12; ++user) {
    Conversation chat = head;
    chat.rename(numbered("user-", user));
    Queue& queue = users.emplace_back();
    for (uint32_t turn = 0; turn < 6; ++turn) queue.push_back(chat_turn(chat, random));
    for (uint32_t edits = 0; edits < 4; ++edits) {
      const Conversation before = chat;
      // System, user, assistant, user, ...: keeps everything before one of the user's messages.
      const auto exchanges = static_cast<uint32_t>(chat.messages() / 2);
      chat.back_to(1 + 2 * random.between(exchanges / 3, exchanges - 2));
      const uint32_t turns = random.between(1, 3);
      for (uint32_t i = 0; i < turns; ++i) queue.push_back(chat_turn(chat, random));
      if (random.one_in(3)) chat = before;
      queue.push_back(chat_turn(chat, random));
    }
  }
  return {.name = "edit earlier",
          .about = "an earlier message is changed, and the conversation goes on from there",
          .requests = interleave(std::move(users), 6, random)};
}

Workload long_document(uint64_t seed) {
  Random random(seed);
  Conversation start("");
  start.say(Role::system, random.words(60));
  std::vector<Queue> documents;
  for (uint32_t document = 0; document < 3; ++document) {
    Conversation head = start;
    head.say(Role::user, random.words(random.between(4500, 5500)));
    Queue& queue = documents.emplace_back();
    for (uint32_t i = 0; i < 24; ++i) {
      Conversation asked = head;
      // Two readers ask about each.
      asked.rename(numbered("reader-", document * 2 + random.between(0, 1)));
      queue.push_back(chat_turn(asked, random));
    }
  }
  return {.name = "long document",
          .about = "three documents, 24 questions about each that do not know of each other",
          .context_tokens = 12'288,
          .requests = interleave(std::move(documents), 3, random)};
}

Workload one_shot(uint64_t seed) {
  Random random(seed);
  Conversation head("");
  head.say(Role::system, random.words(250));
  std::vector<Queue> chats;
  for (uint32_t user = 0; user < 3; ++user) {
    Conversation chat = head;
    chat.rename(numbered("user-", user));
    Queue& queue = chats.emplace_back();
    for (uint32_t turn = 0; turn < 8; ++turn) queue.push_back(chat_turn(chat, random));
  }
  const Queue talk = interleave(std::move(chats), 3, random);
  Queue requests;
  uint32_t shots = 0;
  for (const Request& request : talk) {
    requests.push_back(request);
    const uint32_t count = random.between(4, 10);
    for (uint32_t i = 0; i < count; ++i) {
      // Without a header: a few tokens shared by all prompts would tell nothing about the policies.
      Request shot{.session = numbered("shot-", shots++),
                   .prompt = random.words(random.between(200, 1200)),
                   .answer = random.words(answer_size(random)),
                   .messages = {}};
      shot.messages.push_back({static_cast<uint32_t>(shot.prompt.size()) - 1, Role::user});
      requests.push_back(std::move(shot));
    }
  }
  return {.name = "one-shot",
          .about = "prompts that never come again, and three conversations among them",
          .requests = std::move(requests)};
}

Workload two_on_one(uint64_t seed) {
  Random random(seed);
  Conversation head("");
  head.say(Role::system, random.words(250));
  std::vector<Conversation> chats(2, head);
  chats[0].rename("user-0");
  chats[1].rename("user-1");
  Queue requests;
  for (uint32_t turn = 0; turn < 14; ++turn) {
    for (Conversation& chat : chats) requests.push_back(chat_turn(chat, random));
  }
  return {.name = "two on one",
          .about = "two conversations take turns on one sequence",
          .sequences = 1,
          .context_tokens = 4096,
          .requests = std::move(requests)};
}

std::vector<Workload> all_workloads(uint64_t seed) {
  std::vector<Workload> all;
  all.push_back(shared_prompt(seed + 1));
  all.push_back(agent_turns(seed + 2));
  all.push_back(regenerate(seed + 3));
  all.push_back(edit_earlier(seed + 4));
  all.push_back(long_document(seed + 5));
  all.push_back(one_shot(seed + 6));
  all.push_back(two_on_one(seed + 7));
  return all;
}

}  // namespace stemma::bench::sequences
