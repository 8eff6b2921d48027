"""A model behind an OpenAI-compatible server judges each response.

Reads JUDGE_URL, such as http://localhost:8000/v1, JUDGE_MODEL, and JUDGE_KEY if the server requires one.
"""

import os
import re

from openai import AsyncOpenAI, BadRequestError

PROMPT = """Problem:
{question}

Reference answer: {gold}

Response:
{response}

Judge the response. End with "Score: N", where N goes from 0 (wrong) to 10 (right and well argued)."""


async def compute_score(data_source, solution_str, ground_truth, extra_info, max_tokens=512):
    """The judge's score, from 0 to 1; its whole reply is kept with the rollout."""
    # The model continues its hint, so alone its text would have no beginning.
    response = extra_info["hint"] + solution_str
    prompt = PROMPT.format(question=extra_info["question"], gold=ground_truth, response=response)
    asked = [{"role": "user", "content": prompt}]
    key = os.environ.get("JUDGE_KEY", "none")
    # While the server is out of reach, the call is repeated until seele.reward.time_limit_s ends it.
    async with AsyncOpenAI(base_url=os.environ["JUDGE_URL"], api_key=key, max_retries=1000) as client:
        try:
            reply = await client.chat.completions.create(
                model=os.environ["JUDGE_MODEL"], messages=asked, temperature=0.0, max_tokens=max_tokens
            )
        except BadRequestError as error:  # such as a prompt that is too long for the judge
            return {"score": 0.0, "judged": False, "verdict": str(error)}
    verdict = reply.choices[0].message.content or ""
    scores = re.findall(r"Score:\s*(\d+)", verdict)
    score = min(int(scores[-1]), 10) / 10 if scores else 0.0
    return {"score": score, "judged": bool(scores), "verdict": verdict}
